"""`python -m kgagent`."""

from kgagent.cli import main

if __name__ == "__main__":
    main()
