"""A database that refuses a writer that was too late to notice: the fencing token is a column."""

from __future__ import annotations

import sqlite3

import tenure


class TooLate(Exception):
    pass


def write(database: sqlite3.Connection, value: str, fence: int) -> None:
    """Writes unless somebody with a greater token has written before."""
    with database:
        done = database.execute("UPDATE report SET value = ?, fence = ? WHERE fence <= ?", (value, fence, fence))
        if done.rowcount == 0:
            raise TooLate(f"somebody with a greater token than {fence} has written")


def main(path: str = ":memory:") -> None:
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE IF NOT EXISTS report (value TEXT, fence INTEGER)")
    database.execute("INSERT INTO report SELECT '', 0 WHERE NOT EXISTS (SELECT 1 FROM report)")
    with tenure.leader("report") as earlier:
        write(database, "the first", fence=earlier.token)
    with tenure.leader("report") as later:
        write(database, "the second", fence=later.token)
    try:
        write(database, "from one who slept", fence=earlier.token)
    except TooLate as refused:
        print(refused)
    print(database.execute("SELECT value FROM report").fetchone()[0])


if __name__ == "__main__":
    main()
