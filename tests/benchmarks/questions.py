"""Seconds of a visit to each page of the app, and six questions that a researcher asks of it: clicks and seconds from
the first click to the answer.

    python tests/benchmarks/questions.py [WORKSPACE]

WORKSPACE is one that `paranmt demo` has filled, without it that of the settings. Each question starts on the overview.
A click on a link, a button or a choice counts, and so does a drag. Seconds include what the page draws until it is
whole, not the time that a person needs to read."""
import os
import re
import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / 'tests'), str(ROOT / 'tests/pages')]
from test_app import CALM, CHROMIUM, PATIENCE, Page

from app_workspace import serving
from paranmt_lab.ground.settings import settings


class Reader:
    "Somebody who clicks, and counts."
    def __init__(self, page): self.page, self.clicks = page, 0

    def do(self, act, *given, draws=True):
        self.clicks += 1
        self.page.after(act, *given) if draws else act(*given)

    def go(self, name):
        links = self.page.tab.get_by_test_id('stSidebarNav')
        self.do(links.get_by_role('link', name=name, exact=True).click)

    def press(self, name): self.do(self.page.tab.get_by_text(name, exact=True).first.click)


def threshold(reader, tab):
    reader.go('Pairs')
    reader.do(tab.locator('.st-key-strong_share button', has_text='80%').click)
    chip = tab.locator('.st-key-chips').inner_text().strip().splitlines()[-1]
    return f"{chip}, {reader.page.metric('Pairs kept'):,} left"


def overlap_alone(reader, tab):
    reader.go('Pairs')
    reader.do(reader.page.drag, 'bins_trigram_overlap', .2, .6, draws=False)
    reader.do(tab.get_by_label('Show', exact=True).click, draws=False)
    reader.do(tab.get_by_role('option', name='removed by Trigram overlap alone').click)
    return f"{tab.locator('.st-key-reading article').count()} pairs in the list"


def false_negative(reader, tab):
    reader.go('Mega-batch negatives')
    return ' | '.join(tab.locator('.st-key-hand [data-testid=stMarkdown] p').all_inner_texts())


def against_the_paper(reader, tab):
    reader.go('Results')
    row = tab.locator('.st-key-standings_table tr', has_text=re.compile('this workspace|shipped')).first
    return ' '.join(row.locator('td').all_inner_texts())


def disagreement(reader, tab):
    reader.go('Compare')
    return f"{tab.locator('.st-key-disagreements_list article').count()} pairs in the list"


def next_pairs(reader, tab):
    reader.go('Agreement')
    reader.press('next pairs')
    return tab.locator('[data-testid=stMain]').inner_text().split('next pairs')[-1][:200].replace('\n', ' ')


QUESTIONS = {'Which threshold gives 80 % strong pairs, and how many are left?': threshold,
             'Which pairs does the overlap bound alone remove?': overlap_alone,
             'Why is this negative false?': false_negative,
             "Is my encoder better than the paper's, significantly?": against_the_paper,
             'On which pairs do two encoders disagree?': disagreement,
             'Which pairs should be rated next?': next_pairs}


def visits(page):
    "A visit to each page by its link: the first one, and the faster of two later ones. Without the wait for calm."
    page.open('')
    menu, seconds = page.tab.get_by_test_id('stSidebarNav'), {}
    names = [link.inner_text().split('\n')[-1] for link in menu.get_by_role('link').all()]
    for name in 3 * [*names[1:], names[0]]:  # the overview is open
        page.settle()
        start = time.perf_counter()
        page.after(menu.get_by_role('link', name=name, exact=True).click)
        seconds.setdefault(name, []).append(time.perf_counter() - start - CALM / 1000)
    for name, (first, *later) in seconds.items(): print(f'{name:65} {first:5.1f} s, later {min(later):.1f} s')


def main(workspace):
    os.environ['PARANMT_WORKSPACE'] = str(workspace)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as p, serving(workspace) as (address, _):
        context = p.chromium.launch_persistent_context(folder, executable_path=CHROMIUM, args=['--no-sandbox'],
                                                       viewport={'width': 1440, 'height': 1000})
        page = Page(context, address)
        page.tab.set_default_timeout(PATIENCE)
        visits(page)
        for _ in ('the first visit compiles and fills caches', 'the second is measured'):
            for question, answer in QUESTIONS.items():
                page.open('')
                reader, start = Reader(page), time.perf_counter()
                text = answer(reader, page.tab)
                print(f'{question:65} {reader.clicks} clicks {time.perf_counter() - start:5.1f} s   {text}', flush=True)
        context.close()


if __name__ == '__main__': main(Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else settings().workspace)
