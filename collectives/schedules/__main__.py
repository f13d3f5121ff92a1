"""`python -m collectives.schedules`: print the table of algorithms that the documents have."""

from collectives.schedules.registry import table

if __name__ == "__main__":
    print(table())
