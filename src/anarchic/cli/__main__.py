"""``python -m anarchic.cli``."""

from anarchic.cli import main

if __name__ == "__main__":
    main()
