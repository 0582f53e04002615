#!/usr/bin/env python3
"""The sweeper: the way out of `unknown`, and all the housekeeping.

It calls effect.sweep() every so often, as pg_cron would each minute, and knows nothing
else.  The resolver that looks at the far side is registered with the action (schema.sql).
"""
import sys
import time

from common import connect, die_with_parent, tell

EVERY = 0.5         # seconds between two sweeps


def main():
    die_with_parent()
    cursor = connect("ops", "sweeper").cursor()
    while True:
        cursor.execute("SELECT * FROM effect.sweep()")
        swept = dict(zip((column.name for column in cursor.description), cursor.fetchone()))
        if any(swept.values()):
            tell("swept", **swept)
        time.sleep(EVERY)


if __name__ == "__main__":
    sys.exit(main())
