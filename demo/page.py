"""The dashboard page of the night, and whether it says what the table says."""
import re
import time

from common import connect

PATIENCE = 10       # seconds for which the last sessions are waited for

OTHERS = """
    SELECT count(*) FROM pg_stat_activity
     WHERE datname = current_database() AND backend_type = 'client backend'
       AND pid <> pg_backend_pid() AND application_name <> 'progress'"""

ALL_ROW = re.compile(r"<tr><td>all (jobs|actions)</td>(.*?)</tr>")
CELL = re.compile(r'<td data-l="([^"]+)">(.*?)</td>')
TAG = re.compile(r"<[^>]+>")


def write_page(path):
    """The page, as somebody who may only watch gets it; also written to that file."""
    cursor = connect("watch", "page").cursor()
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:     # a session writes what it has counted as it ends
        cursor.execute(OTHERS)
        if cursor.fetchone()[0] == 0:
            break
        time.sleep(0.05)
    cursor.execute("SELECT effect.dashboard()")
    page = cursor.fetchone()[0]
    with open(path, "w", encoding="utf-8") as file:
        file.write(page)
    return page


def numbers_of(page):
    """{('jobs', 'granted'): 30, ...}: the totals of the page's two rows of sums."""
    numbers = {}
    for kind, row in ALL_ROW.findall(page):
        for label, cell in CELL.findall(row):
            said = re.findall(r"[\d,]+", TAG.sub(" ", cell))
            numbers[kind, label] = int(said[-1].replace(",", "")) if said else 0
    return numbers


def differences(page, night, found):
    """In words: each number that the page and the table do not agree on."""
    there = numbers_of(page)
    here = {
        ("jobs", "granted"): night.counts["granted"],
        ("jobs", "fenced"): night.refusals(),
        ("actions", "duplicates"): night.counts["duplicate"],
        ("actions", "unknown"): found.met,
    }
    for number, value in here.items():
        if there.get(number) != value:
            yield f"the page says {number[1]} {there.get(number)}, the table {value}"
