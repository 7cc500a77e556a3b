"""`python -m tsucb` is the command line."""

from tsucb.cli import main

if __name__ == "__main__":
    main()
