"""`python -m tsucb.cli` is the command line too."""

from tsucb.cli import main

if __name__ == "__main__":
    main()
