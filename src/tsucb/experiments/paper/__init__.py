"""The experiments of Baek and Farias (2023)."""
