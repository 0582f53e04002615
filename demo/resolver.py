#!/usr/bin/env python3
"""The resolver: the way out of `unknown`.

It lists the effects of which nobody knows whether they happened, asks the far side,
and writes down what it found about that very attempt.  Until it has, nobody is told
`go` for them.  It runs beside the job, as the role `ops`.
"""
import argparse
import json
import sys
import time
import urllib.request

import psycopg2

from common import SETTLE, connect, die_with_parent, tell

EVERY = 0.25        # seconds between two looks

# Whether it is settled is asked before the far side is: an empty answer from before that
# moment proves nothing, even if we get round to writing it down only after it.
UNKNOWN = """
    SELECT effect_key, target, attempt,
           submitted_at < clock_timestamp() - make_interval(secs => %s)
      FROM effect.effects
     WHERE action = 'charge' AND state = 'unknown' ORDER BY submitted_at"""

RESOLVE = """
    SELECT effect.resolve_unknown(%s, %s, attempt => %s, evidence => %s, response => %s)"""

# The answers that mean "not now": too early to say that it did not happen, the attempt is
# not the current one any more, its holder is alive, it was ended meanwhile.
LATER = {"LE008": "too_early", "LE009": "moved_on", "LE010": "in_flight", "LE004": "ended"}


def look(far_side, effect_key):
    """What the far side's books say under this key."""
    url = f"{far_side}/charges?reference={effect_key}"
    with urllib.request.urlopen(url, timeout=5) as answer:
        return json.load(answer)


def resolve(cursor, far_side, effect_key, attempt, settled):
    charges = look(far_side, effect_key)
    evidence = json.dumps({"looked_at": "GET /charges", "found": charges})
    if charges:
        finding, response = "happened", json.dumps({"charge": charges[0]["charge"]})
    elif settled:
        finding, response = "did_not_happen", None
    else:
        return "too_early"
    try:
        cursor.execute(RESOLVE, (effect_key, finding, attempt, evidence, response))
    except psycopg2.Error as error:
        if error.pgcode not in LATER:
            raise
        return LATER[error.pgcode]
    return finding


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--far-side", required=True)
    options = parser.parse_args()
    die_with_parent()
    cursor = connect("ops", "resolver").cursor()
    while True:
        cursor.execute(UNKNOWN, (SETTLE,))
        for effect_key, target, attempt, settled in cursor.fetchall():
            tell("met", key=effect_key, attempt=attempt, invoice=target)
            found = resolve(cursor, options.far_side, effect_key, attempt, settled)
            tell("looked", key=effect_key, attempt=attempt, found=found)
        time.sleep(EVERY)


if __name__ == "__main__":
    sys.exit(main())
