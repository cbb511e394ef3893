"""`python -m persist` is the command `persist`."""

from persist.command import main

if __name__ == "__main__":
    main()
