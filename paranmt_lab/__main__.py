"""`python -m paranmt_lab` is `paranmt`."""
from .cli import main

if __name__ == "__main__": main()
