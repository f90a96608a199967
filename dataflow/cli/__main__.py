"""`python -m dataflow.cli`."""

from dataflow.cli import main

if __name__ == "__main__":
    main()
