"""From the last key of a rating to the next pair, in a real browser on this machine.

    python tests/benchmarks/annotation_page.py [pairs]     # 60 unless told

Prints the median and the slowest in milliseconds; the median must stay under 200. The first answers, while the page
warms up, are left out."""
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from app_workspace import serving
from kept import needs
from paranmt_lab.annotation.store import EventLog
from raters import CHROMIUM, Rater, made

WARM = 5


def measured(workspace, pairs):
    "Milliseconds of each pair, rated as fast as a script can press keys, with a pause in which a person would read."
    from playwright.sync_api import sync_playwright
    made(EventLog(f'sqlite:///{workspace}/annotations.sqlite'), 'speed', pairs + WARM + 1, overlap=1)
    with serving(workspace) as (address, _server), sync_playwright() as p:
        chromium = p.chromium.launch(executable_path=CHROMIUM, args=['--no-sandbox', '--disable-background-networking'])
        ada, took = Rater(chromium.new_context(), address).open('speed', 'ada'), []
        for _ in range(pairs + WARM):
            ada.tab.wait_for_timeout(400)
            took.append(ada.next('3', '2'))
        chromium.close()
    return took[WARM:]


if __name__ == '__main__':
    needs('playwright')
    with tempfile.TemporaryDirectory() as folder:
        took = measured(Path(folder), int(sys.argv[1]) if len(sys.argv) > 1 else 60)
    median = statistics.median(took)
    print(f'from key to next pair: median {median:.0f} ms of {len(took)} pairs, '
          f'9 of 10 within {sorted(took)[int(.9 * len(took))]:.0f} ms, slowest {max(took):.0f} ms')
    if median > 200: sys.exit(f'{median:.0f} ms, 200 allowed')
