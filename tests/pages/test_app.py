"""The app in a real Chromium: what it shows is compared with the Parquet files behind it, read by DuckDB and not by the
package.

The workspace is made from the sample by `app_workspace.build`. With PICTURES=1 screenshots go to
tests/screenshots/ (not committed) to be looked at."""
import json
import os
import re
import shlex
import shutil
import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pytest

ROOT = Path(__file__).resolve().parents[2]
CHROMIUM = '/usr/bin/chromium'
SHOTS = ROOT / 'tests/screenshots'
# Milliseconds: the first page imports torch, the first map compiles numba, and the machine may be busy
PATIENCE = 180_000
# Milliseconds in which nothing changes on a page that is drawn: the longest pause between two runs of its script
CALM = 400
# Milliseconds between two looks at a page: one at every frame would have the browser draw as fast as it can
POLL = 40
# Counts in the browser how often the script of the page began to run.
RUNS = """window.runs = 0;
new MutationObserver(changes => changes.forEach(c => {
  if (c.target.dataset.testScriptState == 'running' && c.oldValue != 'running') window.runs++;
})).observe(document, {subtree: true, attributeFilter: ['data-test-script-state'], attributeOldValue: true});"""


def soak(*values): return pytest.param(*values, marks=pytest.mark.soak)


pytestmark = [pytest.mark.browser, pytest.mark.skipif(
    not Path(CHROMIUM).exists(), reason='needs Chromium: apt-get update && apt-get install -y chromium')]


@pytest.fixture(scope='module')
def workspace(tmp_path_factory):
    "Folder of a workspace made through the real functions."
    from app_workspace import build
    return build(tmp_path_factory.mktemp('workspace')).workspace


@pytest.fixture(scope='module')
def server(workspace):
    "Address and process of a running app."
    from app_workspace import serving
    with serving(workspace) as found: yield found


@pytest.fixture(scope='module')
def app(server):
    "Address of a running app."
    return server[0]


@pytest.fixture(scope='module')
def browser(tmp_path_factory):
    "One Chromium for all tests."
    from playwright.sync_api import sync_playwright
    with sync_playwright() as p:
        context = p.chromium.launch_persistent_context(
            str(tmp_path_factory.mktemp('profile')), executable_path=CHROMIUM, viewport={'width': 1440, 'height': 1100},
            args=['--no-sandbox', '--disable-background-networking', '--force-prefers-reduced-motion'],
            accept_downloads=True)
        yield context
        context.close()


def new_tab(browser):
    "A tab that counts how often the script of its page ran."
    tab = browser.new_page()
    tab.add_init_script(RUNS)
    tab.set_default_timeout(PATIENCE)
    return tab


@pytest.fixture(scope='module')
def tab(browser):
    "One tab for all tests: its process keeps the frontend compiled."
    return new_tab(browser)


class Page:
    "A page of the app with the few things the tests do on it; remembers requests that leave the machine."
    def __init__(self, browser, address, tab=None):
        self.address, self.abroad, self.dialogs = address, [], []
        self.tab = tab or new_tab(browser)
        self.tab.on('request', self.note_request)
        self.tab.on('dialog', self.note_dialog)

    def note_request(self, request):
        here = self.address, 'data:', 'blob:', 'about:', self.address.replace('http', 'ws')
        if not request.url.startswith(here): self.abroad.append(request.url)

    def note_dialog(self, dialog):
        self.dialogs.append(dialog.message)
        dialog.dismiss()

    def leave(self):
        "Give the tab back as it was."
        self.tab.evaluate('sessionStorage.clear()')
        self.tab.goto('about:blank')
        self.tab.emulate_media(color_scheme='null')
        self.tab.remove_listener('request', self.note_request)
        self.tab.remove_listener('dialog', self.note_dialog)

    def open(self, path, **address):
        "Go to a page and wait until it is drawn."
        from urllib.parse import urlencode
        self.tab.goto(f'{self.address}/{path}?{urlencode(address, doseq=True)}')
        return self.settle()

    def settle(self):
        "Wait until the script has run and nothing is a placeholder any more, for a while without a break."
        self.tab.wait_for_selector('h1')
        self.tab.evaluate('() => { window.calm = 0; window.looks_of_calm = 0; }')
        self.tab.wait_for_function(f"""() => {{
          if (document.querySelector('[data-testid=stSkeleton],[data-testid=stSpinner]')
              || [...document.querySelectorAll('[data-testid=stCaptionContainer]')].some(
                e => e.textContent.startsWith('hourglass'))  // the page counts, and draws itself again
              || (document.querySelector('[data-testid=stApp]')?.dataset.testScriptState ?? 'running') == 'running') {{
            window.calm = 0;
            window.looks_of_calm = 0;
            return false;
          }}
          window.calm ||= performance.now();
          return ++window.looks_of_calm > 10 && performance.now() - window.calm > {CALM};
        }}""", polling=POLL)
        assert not self.tab.query_selector('[data-testid=stException]'), self.tab.inner_text(
            '[data-testid=stException]')
        return self

    def after(self, act, *given):
        "Do something upon which the script runs again, and wait until the page is drawn."
        before = self.tab.evaluate('window.runs')
        act(*given)
        self.tab.wait_for_function('before => window.runs > before', arg=before, polling=POLL)
        return self.settle()

    def text(self): return self.tab.inner_text('[data-testid=stMain]')

    def sources(self):
        "What the header says about where the figures come from."
        self.tab.locator('.st-key-page_header').get_by_role('button', name='Sources').click()
        text = self.tab.locator('[data-testid=stPopoverBody]').inner_text()
        self.tab.keyboard.press('Escape')
        return text

    def table(self, key):
        "Cells of a table, from the hidden one that Streamlit draws for screen readers: raw values of what is in view."
        # a table that cannot be selected in has its key at the box around it
        box = f':is(.st-key-{key}, .st-key-{key}_box, .st-key-{key}_table)'
        self.tab.locator(box).first.scroll_into_view_if_needed() # a table out of sight is not drawn
        self.tab.wait_for_selector(f'{box} canvas', state='attached')
        self.tab.wait_for_timeout(500)  # the hidden one follows what is drawn after a while
        rows = self.tab.evaluate(f"""() => {{
          const frame = '[data-testid=stDataFrame]';
          const table = document.querySelector(`{box} ${{frame}}, {box}${{frame}}`);
          const texts = r => [...r.querySelectorAll('[role=gridcell],[role=columnheader]')].map(c => c.textContent);
          return [...table.querySelectorAll('[role=row]')].map(texts); }}""")
        rows = [r for r in rows if r]
        return pd.DataFrame(rows[1:], columns=rows[0])

    def metric(self, label):
        "The number under a label."
        return next(int(m.query_selector('[data-testid=stMetricValue]').inner_text().replace(',', ''))
                    for m in self.tab.query_selector_all('[data-testid=stMetric]') if label in m.inner_text())

    def saved(self, key):
        "The frame behind a table's save button."
        self.tab.locator(f'.st-key-{key}').scroll_into_view_if_needed()
        with self.tab.expect_download() as d: self.tab.click(f'.st-key-{key} button')
        return pd.read_csv(d.value.path(), sep='\t', keep_default_na=False, quoting=3, encoding='utf-8')

    def drag(self, key, left, right, top=0.5, bottom=0.5):
        "Drag over a chart, in shares of its width and height."
        mark = self.tab.locator(f'.st-key-{key} .vega-embed').locator('canvas, svg').first
        mark.scroll_into_view_if_needed()
        box = mark.bounding_box()
        def stroke():
            self.tab.mouse.move(box['x'] + left * box['width'], box['y'] + top * box['height'])
            self.tab.mouse.down()
            self.tab.mouse.move(box['x'] + (left + right) / 2 * box['width'],
                                box['y'] + (top + bottom) / 2 * box['height'], steps=5)
            self.tab.mouse.move(box['x'] + right * box['width'], box['y'] + bottom * box['height'], steps=5)
            self.tab.mouse.up()
        return self.after(stroke)

    def shot(self, name):
        "A picture of the whole page, where somebody wants to look at it: PICTURES=1."
        if not os.environ.get('PICTURES'): return
        SHOTS.mkdir(exist_ok=True)
        for _ in range(2):
            height = self.tab.evaluate("document.querySelector('[data-testid=stMain]').scrollHeight")
            self.tab.set_viewport_size({'width': 1440, 'height': min(max(height, 900), 4000)})
            self.tab.wait_for_timeout(800)
        self.settle()
        self.tab.screenshot(path=SHOTS / f'{name}.png')
        self.tab.set_viewport_size({'width': 1440, 'height': 1100})

    def address_bar(self):
        "What the address says."
        from urllib.parse import parse_qs, urlparse
        return parse_qs(urlparse(self.tab.url).query)


@pytest.fixture
def page(browser, app, tab):
    "The tab, with a page of its own."
    page = Page(browser, app, tab)
    yield page
    page.leave()
    assert not page.abroad, f'the app asked for {page.abroad[:3]}'
    assert not page.dialogs


def ask(workspace, sql, *params, corpus='talk-reworded'):
    "A question to the files themselves: {pairs} and {m:MEASURE} stand for the Parquet of a corpus."
    folder = workspace / 'corpora' / corpus
    sql = sql.replace('{pairs}', f"read_parquet('{folder}/pairs/*.parquet')")
    sql = re.sub(r'\{m:([^}]+)\}', lambda m: f"read_parquet('{folder}/measures/{m[1]}/*.parquet')", sql)
    return duckdb.sql(sql, params=list(params)).df()


RANGES = [(-0.1, 0.2), (0.2, 0.4), (0.4, 0.6), (0.6, 0.8), (0.8, 1.0)]
SCORE = 'paraphrase_score@trigram-m1'


def test_overview(page, workspace):
    "Cards at the top, a job at work, and the tables in tabs with what is opened."
    from paranmt_lab.jobs.progress import Progress
    with Progress(1000, 'pairs', workspace / 'runs/word-trigram-m20', every=0, show=False) as job:
        time.sleep(0.2)
        job.advance(250)
        page.open('', corpus='talk-reworded', run='word-trigram-m20')
        total = sum(ask(workspace, 'SELECT count(*) AS n FROM {pairs}', corpus=c.name).n[0]
                    for c in (workspace / 'corpora').iterdir())
        n_corpora = len(list(workspace.glob('corpora/*/')))
        assert f'{total:,} pairs in {n_corpora} corpora' in page.text()
        assert f'results of {len(list(workspace.glob("runs/*/results.parquet")))} systems' in page.text()
        assert '250 of 1,000 pairs' in page.text() and 'left' in page.text()
        table = page.table('corpus_rows').set_index('corpus')
        assert (int(table.pairs['talk-reworded'].replace(',', ''))
                == ask(workspace, 'SELECT count(*) AS n FROM {pairs}').n[0])
        assert 'How talk-reworded was made' in page.text()
        page.shot('overview')
        page.after(page.tab.get_by_role('tab', name='Runs').click)
        assert 'How word-trigram-m20 was trained' in page.text() and page.address_bar()['part'] == ['Runs']
    page.tab.get_by_text('250 of 1,000 pairs').wait_for(state='detached')
    page.open('overview', corpus='talk-reworded')  # its name is an address, too
    assert 'How talk-reworded was made' in page.text() and not page.tab.query_selector('[role=dialog]')


@pytest.mark.soak
def test_a_scoring_at_work_is_shown_and_stopped(page, workspace):
    "A corpus that is being scored has a bar where every job has one, and a button that stops it by two clicks."
    from paranmt_lab.jobs.progress import Progress
    folder = workspace / 'corpora/talk-reworded'
    before = (folder / 'progress.json').read_bytes()
    try:
        with Progress(1000, 'pairs', folder, every=0, show=False) as job:
            time.sleep(0.2)
            job.advance(250)
            for path in ('back-translation', ''): assert '250 of 1,000 pairs' in page.open(path).text()
            page.tab.locator('.st-key-stop_corpora-talk-reworded button').first.click()
            page.tab.locator('.st-key-really_corpora-talk-reworded button').first.click()
            page.tab.wait_for_selector('text=Asked to stop')
            assert job.stopping
            page.shot('overview-scoring')
    finally:
        (folder / 'progress.json').write_bytes(before)
        (folder / 'stop').unlink(missing_ok=True)


def test_the_five_ranges(page, workspace):
    "Counts and overlaps of the five ranges are those of the files; the paper's row stands beside them."
    page.open('pairs', corpus='talk-reworded')
    assert set(page.address_bar()) == COMPLETE['pairs']
    shown = page.table('ranges')
    for (low, high), row in zip(RANGES, shown.itertuples(index=False)):
        found = ask(workspace, f'SELECT count(*) AS n, avg(trigram_overlap) AS mean, '
                    f'stddev_pop(trigram_overlap) AS sd FROM {{m:{SCORE}}} POSITIONAL JOIN '
                    f'{{m:trigram_overlap}} WHERE "{SCORE}" > ?::FLOAT AND "{SCORE}" <= ?::FLOAT', low, high).iloc[0]
        cells = list(row)
        assert f'({low}, {high}]' in cells
        at = cells.index(f'({low}, {high}]')
        assert int(cells[at + 1].replace(',', '')) == found.n
        assert cells[at + 3] == (f'{found["mean"]:.2f} ± {found.sd:.2f}' if found.n else '')
    assert {'18', '0.35 ± 0.20', '86', '97'} <= set(shown.iloc[-1]) # the last row of Table 3
    page.shot('pairs')


def test_a_click_on_a_range_leads_to_its_pairs(page, workspace):
    "One of the paper's ranges: its button, the count and the saved rows are those of the files; its chip takes it off."
    page.open('pairs', corpus='talk-reworded', rows=5000)
    found = ask(workspace, f'SELECT pair_id, reference, translation FROM {{pairs}} POSITIONAL '
                f'JOIN {{m:{SCORE}}} WHERE "{SCORE}" > 0.6::FLOAT AND "{SCORE}" <= 0.8::FLOAT ORDER BY pair_id')
    page.after(page.tab.get_by_role('radio', name=f'(0.6, 0.8] · {len(found):,}').click)
    assert page.address_bar()['filter'] == [f'{SCORE}:0.6:0.8']
    assert page.metric('Pairs kept') == len(found)
    saved = page.saved('pairs_save').sort_values('pair_id')
    assert saved.pair_id.tolist() == found.pair_id.tolist()
    assert saved.reference.tolist() == found.reference.tolist()
    assert saved.translation.tolist() == found.translation.tolist()
    page.after(page.tab.locator('.st-key-chips button').first.click)
    assert 'filter' not in page.address_bar()


@pytest.mark.soak
def test_redraw(page, workspace):
    "The key N draws another sample of the same size from the same pairs; the address says which."
    page.open('pairs', corpus='talk-reworded', filter='trigram_overlap:0.2:0.9', rows=20)
    count, before = page.metric('Pairs kept'), page.saved('pairs_save')
    page.tab.locator('h1').click()
    after = page.after(page.tab.keyboard.press, 'n').saved('pairs_save')
    assert page.address_bar()['seed'] == ['1'] and page.metric('Pairs kept') == count
    assert len(before) == len(after) == 20 and set(before.pair_id) != set(after.pair_id)
    inside = ask(workspace, 'SELECT count(*) AS n FROM {m:trigram_overlap} '
                 'WHERE trigram_overlap > 0.2::FLOAT AND trigram_overlap <= 0.9::FLOAT').n[0]
    assert count == inside
    assert after.trigram_overlap.between(0.2, 0.9).all()
    again = Page(page.tab.context, page.address) # somebody else opens the same link
    assert (again.open('pairs', **page.address_bar()).saved('pairs_save').pair_id.tolist()
            == after.pair_id.tolist())
    again.tab.close()


def test_a_drag_over_a_histogram(page, workspace):
    "Dragging over bars chooses a range, a second drag replaces it, and the count is that of the files."
    page.open('pairs', corpus='talk-reworded')
    for left, right in ((0.45, 0.75), (0.3, 0.6)):
        page.drag('bins_trigram_overlap', left, right)
        measure, *ends = page.address_bar()['filter'][0].rsplit(':', 2)
        low, high = map(float, ends)
        assert measure == 'trigram_overlap' and 0 < low < high < 1
        assert page.metric('Pairs kept') == len(kept_by(workspace, trigram_overlap=(low, high)))
    page.shot('pairs-drag')


@pytest.mark.soak
def test_a_rectangle_over_the_density_filters_the_page(page, workspace):
    "Two measures: a rectangle sets two ranges, which all numbers obey, and so does the selection made of them."
    page.open('pairs', corpus='talk-reworded', part='two measures', beside='trigram_overlap', rows=5000)
    page.drag('density', 0.5, 0.9, 0.5, 0.1)
    texts = [text.rsplit(':', 2) for text in page.address_bar()['filter']]
    ranges = {measure: (float(low), float(high or 9)) for measure, low, high in texts}
    assert set(ranges) == {SCORE, 'trigram_overlap'}
    kept = kept_by(workspace, **ranges)
    assert page.metric('Pairs kept') == len(kept) > 0
    assert set(page.saved('pairs_save').pair_id) == kept
    page.shot('pairs-density')
    for shape in ('by group', 'over another measure'):
        page.after(page.tab.locator('.st-key-shape').get_by_text(shape, exact=True).click)
        assert page.metric('Pairs kept') == len(kept) and page.address_bar()['shape'] == [shape]
    page.tab.get_by_label('Text of a side', exact=True).fill('The')
    page.after(page.tab.keyboard.press, 'Enter')
    texts = "contains(reference, 'The') OR contains(translation, 'The')"
    kept &= set(ask(workspace, f'SELECT pair_id FROM {{pairs}} WHERE {texts}').pair_id)
    assert page.metric('Pairs kept') == len(kept) > 0
    assert set(page.saved('pairs_save').pair_id) == kept


def test_the_reading_list_is_read_by_keys(page, workspace):
    "Both sides in full, differences marked; arrows go on, Enter opens a source's hypotheses, words search."
    page.open('pairs', corpus='talk-reworded', by='trigram_overlap', order='lowest first', rows=20, page=3)
    lowest = ask(workspace, 'SELECT pair_id, reference, translation FROM {pairs} POSITIONAL JOIN {m:trigram_overlap} '
                 'WHERE trigram_overlap IS NOT NULL ORDER BY trigram_overlap, pair_id LIMIT 20 OFFSET 40')
    articles = page.tab.locator('.st-key-reading article')
    assert articles.count() == 20
    for side in ('reference', 'translation'): assert lowest[side][0] in articles.first.text_content()
    assert articles.locator('mark').count() and articles.first.text_content().startswith('41')
    articles.first.focus()
    page.tab.keyboard.press('ArrowDown')
    page.tab.keyboard.press('Enter')
    page.tab.locator('.st-key-open_pair').wait_for()
    page.settle()
    assert page.address_bar()['pair'] == [str(lowest.pair_id[1])]
    own = ask(workspace, 'SELECT pair_id FROM {pairs} WHERE segment = (SELECT segment FROM {pairs} WHERE pair_id = ?) '
              'ORDER BY "rank"', int(lowest.pair_id[1]))
    assert page.saved('same_source_save').pair_id.tolist() == own.pair_id.tolist()
    page.tab.locator('.st-key-pin_it button').click()
    page.tab.get_by_text('1 pinned pair').wait_for()
    page.shot('pairs-reading')
    page.open('pairs', corpus='talk-reworded', words='would', rows=1000)
    page.tab.wait_for_function("() => !document.body.innerText.includes('of the corpus searched')")
    found = ask(workspace, "SELECT pair_id FROM {pairs} WHERE contains(lower(reference), 'would') "
                "OR contains(lower(translation), 'would')")
    assert page.settle().saved('pairs_save').pair_id.tolist() == found.pair_id.tolist()


COMPLETE = {'pairs': {'corpus', 'show', 'score', 'list', 'order', 'by', 'rows', 'seed', 'view', 'part', 'scale'},
            'training': {'runs', 'over', 'smooth', 'seeds', 'options'},
            'negatives': {'run', 'view', 'probe', 'side', 'seed', 'second', 'above'},
            'lexicon': {'lexicon', 'word', 'by', 'least', 'rows', 'other'},
            'embedding-map': {'corpus', 'encoder', 'colour', 'sides', 'pairs', 'seed', 'edges', 'clusters'},
            'compare': {'kind', 'run', 'other', 'pairs', 'view'},
            'results': {'systems', 'view', 'table', 'figure', 'row'},
            'back-translation': {'corpus', 'view', 'many', 'order', 'scorer'}}


@pytest.mark.parametrize('path', ['lexicon', *(soak(path) for path in COMPLETE if path != 'lexicon')])
def test_the_address_holds_the_defaults(page, path):
    """Every choice that decides what is shown stands in the address of a page that was opened without one; the tests
    of the other pages look at theirs where they open them."""
    assert set(page.open(path).address_bar()) == COMPLETE[path]


@pytest.mark.soak
def test_an_address_shows_the_same_after_something_was_added(page, workspace):
    "A new corpus and a new run become the defaults; an address that was noted before goes on naming what it showed."
    noted = {path: page.open(path).address_bar() for path in ('pairs', 'training')}
    count = page.open('pairs').metric('Pairs kept')
    shutil.copytree(workspace / 'corpora/hostile', workspace / 'corpora/a-first')
    shutil.copytree(workspace / 'runs/trigram-m1', workspace / 'runs/youngest', copy_function=shutil.copy)
    try:
        assert page.open('pairs', **noted['pairs']).metric('Pairs kept') == count
        assert page.address_bar() == noted['pairs']
        assert page.open('training', **noted['training']).address_bar() == noted['training']
        assert page.open('pairs').address_bar()['corpus'] == ['a-first']
    finally:
        shutil.rmtree(workspace / 'corpora/a-first')
        shutil.rmtree(workspace / 'runs/youngest')


def kept_by(workspace, **ranges):
    "Ids of the pairs of (low, high] of each measure, by the files."
    columns = ' POSITIONAL JOIN '.join(['{pairs}', *(f'{{m:{m}}}' for m in ranges)])
    inside = ' AND '.join(f'"{m}" > {low}::FLOAT AND "{m}" <= {high}::FLOAT' for m, (low, high) in ranges.items())
    return set(ask(workspace, f'SELECT pair_id FROM {columns} WHERE {inside}').pair_id)


def test_filters_count_what_the_files_hold(page, workspace):
    "Pairs kept and pairs that one range removes alone; a typed bound moves the range, and Back moves it back."
    ranges = dict(trigram_overlap=(0.1, 0.7), reference_length=(5, 12))
    filters = [f'{m}:{a}:{b}' for m, (a, b) in ranges.items()]
    page.open('pairs', corpus='talk-reworded', filter=filters, rows=1000, list='removed by trigram_overlap')
    kept, length = kept_by(workspace, **ranges), kept_by(workspace, reference_length=ranges['reference_length'])
    assert page.metric('Pairs kept') == len(kept) > 0
    choice = page.tab.get_by_label('Show', exact=True).input_value()
    assert choice == f'removed by Trigram overlap alone ({len(length - kept):,})'
    removed = set(page.saved('pairs_save').pair_id)
    assert removed <= length - kept and len(removed) == min(1000, len(length - kept))
    page.open('pairs', corpus='talk-reworded', filter=filters, rows=1000, list='next to trigram_overlap')
    beside = page.saved('pairs_save')
    assert set(beside.pair_id) <= kept and beside.trigram_overlap.max() == ask(
        workspace, f"SELECT max(trigram_overlap) AS m FROM {{pairs}} POSITIONAL JOIN {{m:trigram_overlap}} "
        f"WHERE pair_id IN ({', '.join(map(str, kept))})").m[0]
    lower = page.tab.get_by_label('Trigram overlap, above', exact=True)
    lower.fill('0.105')
    page.after(page.tab.keyboard.press, 'Enter')
    assert page.address_bar()['filter'] == ['reference_length:5:12', 'trigram_overlap:0.105:0.7']
    ranges['trigram_overlap'] = (0.105, 0.7)
    assert page.metric('Pairs kept') == len(kept_by(workspace, **ranges))
    assert page.after(page.tab.go_back).metric('Pairs kept') == len(kept)
    assert lower.input_value() == '0.1'


@pytest.mark.soak
def test_a_domain_and_a_text_are_filters(page, workspace):
    "The pairs kept are those of the domain that have the text on a side."
    page.open('pairs', corpus='talk-reworded', filter='trigram_overlap:0.1:0.7', domain='news', text='the')
    kept = kept_by(workspace, trigram_overlap=(0.1, 0.7)) & set(ask(
        workspace, "SELECT pair_id FROM {pairs} WHERE corpus = 'news' AND "
        "(contains(lower(reference), 'the') OR contains(lower(translation), 'the'))").pair_id)
    assert page.metric('Pairs kept') == len(kept) > 0


def test_filters_become_a_selection_and_a_campaign(page, workspace):
    "What the ranges keep is saved, and drawn for people: kept pairs, or both sides of a threshold."
    page.open('pairs', corpus='talk-reworded', part='save, send, train',
              filter=['trigram_overlap:0.1:', 'reference_length:5:'])
    kept = kept_by(workspace, trigram_overlap=(0.1, 9), reference_length=(5, 999))
    page.tab.get_by_text('Send to a campaign').wait_for()
    save, send = page.tab.get_by_test_id('stForm').all()
    save.get_by_label('Name').fill('middle')
    save.get_by_role('button', name='Save').click()
    page.tab.get_by_text(f'Selection middle keeps {len(kept):,} pairs.').wait_for()
    record = json.loads((workspace / 'corpora/talk-reworded/selections/middle.json').read_text())
    assert record['pairs'] == len(kept)
    send.get_by_label('Name').fill('both-sides')
    send.get_by_label('Pairs', exact=True).click()
    page.tab.get_by_role('option', name='both sides of Trigram overlap').click()
    send.get_by_role('button', name='Draw').click()
    page.tab.get_by_text('Campaign both-sides has 100 pairs.').wait_for()
    with closing(sqlite3.connect(workspace / 'annotations.sqlite')) as db:
        drawn = db.execute("SELECT pair_id, stratum FROM items WHERE campaign = 'both-sides' "
                           "AND repeat_of IS NULL").fetchall()
    assert {stratum for _, stratum in drawn} == {'(None, 0.1]', '(0.1, None]'}
    assert all((stratum == '(0.1, None]') == (pair in kept) for pair, stratum in drawn)
    assert {pair for pair, _ in drawn} <= kept_by(workspace, reference_length=(5, 999))


def click_row(page, key, row):
    "Click the box before a row of a table, counted from 0."
    page.tab.locator(f'.st-key-{key}').first.scroll_into_view_if_needed()
    box = page.tab.locator(f'.st-key-{key} canvas').first.bounding_box()
    page.after(page.tab.mouse.click, box['x'] + 16, box['y'] + 35 * (row + 1.5))


@pytest.fixture
def own_page(browser, app):
    "A page in a tab of its own, whose history is short."
    page = Page(browser, app)
    yield page
    page.tab.close()


@pytest.mark.soak
def test_back_after_two_clicks(own_page, workspace):
    "A click on a range is one entry of the history: Back shows both bounds of the click before, Forward of the last."
    page = own_page
    page.open('pairs', corpus='talk-reworded')
    begin = page.tab.evaluate('history.length')
    pills = page.tab.locator('.st-key-paper_range button')
    page.after(pills.nth(1).click)
    page.after(pills.nth(3).click)
    assert page.tab.evaluate('history.length') == begin + 2
    title = 'Paraphrase score (trigram-m1), '
    for go, bounds in ((page.tab.go_back, (0.2, 0.4)), (page.tab.go_forward, (0.6, 0.8))):
        page.after(go)
        assert page.address_bar()['filter'] == [f'{SCORE}:{bounds[0]}:{bounds[1]}']
        assert page.metric('Pairs kept') == len(kept_by(workspace, **{SCORE: bounds}))
        assert [float(page.tab.get_by_label(title + end, exact=True).input_value()) for end in ('above', 'up to')
                ] == list(bounds)
    for _ in range(2): page.after(page.tab.go_back)
    assert 'filter' not in page.address_bar()


@pytest.mark.soak
def test_back_is_one_press_for_a_page(own_page):
    "The choices that a page writes into its address are no step of their own, neither at the first page nor at a link."
    page = own_page
    page.open('pairs')
    begin = page.tab.evaluate('history.length')
    seen = [page.tab.url]
    for name in ('Back-translation', 'Training', 'Results'):
        page.after(page.tab.get_by_test_id('stSidebarNav').get_by_role('link', name=name).click)
        seen.append(page.tab.url)
    assert all('?' in address for address in seen) and page.tab.evaluate('history.length') == begin + 3
    for address in seen[-2::-1]:
        page.after(page.tab.go_back)
        assert page.tab.url == address


def test_back_from_a_choice_in_the_sidebar(page):
    "Back undoes the choice of a corpus, on the page and in the address."
    page.open('pairs', corpus='talk-reworded')
    page.tab.get_by_label('Corpus').click()
    assert page.after(page.tab.get_by_role('option', name='hostile').click).address_bar()['corpus'] == ['hostile']
    assert page.after(page.tab.go_back).address_bar()['corpus'] == ['talk-reworded']
    assert page.tab.get_by_label('Corpus').input_value() == 'talk-reworded'
    assert 'corpus talk-reworded,' in page.sources()


def test_a_parameter_that_no_page_knows_is_named(page):
    "An address with a slip, or of an older version, is not passed over in silence."
    page.open('pairs', corpus='talk-reworded', above=0.6)
    assert 'does not know' in page.tab.inner_text('[data-testid=stAlert]')
    assert 'above' in page.tab.inner_text('[data-testid=stAlert]')


@pytest.mark.soak
def test_a_domain_filters_the_whole_page(page, workspace):
    "The domain of the sidebar holds for ranges, counts and rows, and the sources name it."
    domain = ask(workspace, "SELECT corpus, count(*) AS n FROM {pairs} GROUP BY ALL ORDER BY n LIMIT 1").corpus[0]
    page.open('pairs', corpus='talk-reworded', domain=domain, rows=5000)
    inside = lambda low, high: ask(workspace, f'SELECT count(*) AS n FROM {{pairs}} POSITIONAL JOIN '
                                   f'{{m:{SCORE}}} WHERE corpus = ? AND "{SCORE}" > ?::FLOAT AND "{SCORE}" <= ?::FLOAT',
                                   domain, low, high).n[0]
    shown = page.table('ranges')
    assert [int(n.replace(',', '')) for n in shown.pairs] == [inside(*r) for r in RANGES]
    assert page.metric('Pairs kept') == len(page.saved('pairs_save'))
    assert f'domain {domain}' in page.sources()
    page.shot('pairs-domain')


def test_a_stopped_job_says_how_to_go_on(page, workspace):
    "A stopped job stays on the Overview and on the page of its kind, with its count and the command that goes on."
    folder = workspace / 'runs/word-trigram-m20'
    before = (folder / 'progress.json').read_bytes() if (folder / 'progress.json').exists() else None
    command = "paranmt train word-trigram-m20 talk-reworded --megabatch 20"
    (folder / 'progress.json').write_text(json.dumps(
        dict(status='stopped', what='pairs', done=400, total=4996, rate=3.5, updated=time.time(), command=command)))
    try:
        for path in ('training', ''):
            text = page.open(path).text()
            assert 'stopped at 400 of 4,996 pairs' in text and command in text
        page.shot('overview-stopped')
    finally: (folder / 'progress.json').write_bytes(before) if before else (folder / 'progress.json').unlink()


def broken_corpus(workspace, name, harm):
    "A copy of the corpus with a damaged file."
    folder = workspace / 'corpora' / name
    shutil.copytree(workspace / 'corpora/talk-reworded', folder)
    shutil.rmtree(folder / 'cache/numbers', ignore_errors=True)
    harm(folder)
    return folder


def flip(path):
    "A file whose first and last 200 bytes are other ones."
    data = path.read_bytes()
    path.write_bytes(bytes(b ^ 0x5A for b in data[:200]) + data[200:-200] + bytes(b ^ 0x5A for b in data[-200:]))


HARM = {'torn-shard': lambda f: flip(f / 'pairs/part-00000.parquet'),
        'torn-measure': lambda f: flip(f / 'measures/trigram_overlap/part-00000.parquet'),
        'text-measure': lambda f: pd.DataFrame({'trigram_overlap': ['a', 'b']})
        .to_parquet(f / 'measures/trigram_overlap/part-00000.parquet'),
        'cut-shard': lambda f: (f / 'pairs/part-00000.parquet').write_bytes(
            (f / 'pairs/part-00000.parquet').read_bytes()[:-200]),
        'more-columns': lambda f: pd.read_parquet(f / 'pairs/part-00000.parquet').assign(colour='red').to_parquet(
            f / 'pairs/part-00000.parquet'),
        'other-columns': lambda f: pd.DataFrame({'a': [1, 2]}).to_parquet(f / 'pairs/part-00000.parquet'),
        'manifest-list': lambda f: (f / 'manifests/translate.json').write_text('[1, 2]'),
        'selection-list': lambda f: (f / 'selections/strong.json').write_text('[1, 2]')}


@pytest.mark.parametrize('harm', ['torn-shard', soak('text-measure'), soak('selection-list'), soak('torn-measure'),
                                  soak('other-columns'), soak('manifest-list'), soak('cut-shard'),
                                  soak('more-columns')])
def test_a_damaged_file_spoils_one_view(page, workspace, harm):
    "Pages that use a damaged corpus say so in plain words; the list of corpora and the other corpora stay."
    folder = broken_corpus(workspace, harm, HARM[harm])
    try:
        for path in ('', 'pairs', 'back-translation', 'embedding-map'):
            page.open(path, corpus=harm)
            text = page.tab.inner_text('[data-testid=stApp]')
            assert not re.search('Traceback|Ask Google|Ask ChatGPT|AttributeError|KeyError|BinderException', text), text
            assert text.count('not a readable Parquet file') <= 1, 'the page tells each problem once'
            page.shot(f'damaged-{harm}-{path or "overview"}')
            if not path: assert 'talk-reworded' in page.table('corpus_rows').corpus.tolist()
        assert page.open('pairs', corpus='talk-reworded').metric('Pairs kept')
    finally: shutil.rmtree(folder)


@pytest.mark.soak
def test_a_run_without_results_and_a_campaign_without_ratings(page, workspace):
    "Each is told on its own view, with the command that mends it; other runs and views stay."
    from dataclasses import replace

    from paranmt_lab.annotation.campaigns import Campaign, create_campaign
    from paranmt_lab.annotation.store import EventLog
    from paranmt_lab.ground.settings import settings
    file = workspace / 'runs/trigram-m1/results.parquet'
    kept = file.read_bytes()
    try:
        file.write_bytes(kept[:-100])
        text = page.open('results', view='By data set').text()
        assert 'The results of trigram-m1 cannot be read' in text
        assert 'word-trigram-m20' in page.table('by_dataset_table').columns
        file.unlink()
        text = page.open('compare', run='trigram-m1', other='word-trigram-m20').text()
        assert 'trigram-m1 has no results yet' in text and 'paranmt evaluate trigram-m1' in text
        assert re.search('settings? differ', text) and 'cannot be shown' not in text
        assert 'cannot be read' not in page.open('results').text()
    finally: file.write_bytes(kept)
    lab = replace(settings(), workspace=workspace, annotations=f"sqlite:///{workspace / 'annotations.sqlite'}")
    create_campaign(EventLog(lab.annotations), Campaign('unrated', 'talk-reworded', measure='', n=5), lab)
    for view in ('agreement', 'raters', 'in dispute', 'table 3'):
        text = page.open('agreement', campaign='unrated', view=view).text()
        assert 'cannot be shown' not in text and '0 of ' in text
        if view in ('agreement', 'table 3'): assert 'There are no ratings yet' in text


@pytest.mark.soak
def test_a_lost_shard_is_told_on_every_page(page, workspace):
    "On the first page, too, where no corpus is opened."
    folder = broken_corpus(workspace, 'lost-shard', lambda f: (f / 'pairs/part-00000.parquet').unlink())
    try:
        assert 'Incomplete or damaged, and counted as far as they can be read: lost-shard' in page.open('').text()
        rows = page.table('corpus_rows').set_index('corpus').problem
        assert 'part-00000.parquet' in rows['lost-shard'] and not rows['talk-reworded']
        page.shot('lost-shard-overview')
        for path in ('', 'pairs', 'back-translation', 'embedding-map'):
            assert 'lost-shard is incomplete or damaged' in page.open(path, corpus='lost-shard').text()
            page.shot(f'lost-shard-{path or "opened"}')
    finally: shutil.rmtree(folder)


@pytest.mark.soak
def test_a_bad_corpus_does_not_take_the_list_away(page, workspace):
    "A dangling link, a link to a corpus elsewhere and a corpus without pairs stand beside the others."
    links = [workspace / 'corpora/dangling', workspace / 'corpora/linked']
    for link, target in zip(links, (workspace / 'nowhere', workspace / 'elsewhere')): link.symlink_to(target)
    shutil.copytree(workspace / 'corpora/hostile', workspace / 'elsewhere')
    try:
        page.open('')
        assert {'talk-reworded', 'hostile'} <= set(page.table('corpus_rows').corpus)
        for path in ('pairs', 'back-translation'):
            assert page.open(path, corpus='talk-reworded').tab.query_selector('canvas')
    finally:
        for link in links: link.unlink()
        shutil.rmtree(workspace / 'elsewhere')


@pytest.mark.soak
def test_a_long_error_keeps_its_remedy(page, workspace):
    "The end of a long error, which says what to do, is on the page."
    folder = workspace / 'corpora/hostile'
    (folder / 'progress.json').write_text(
        json.dumps(dict(status='failed', what='pairs', done=4, total=9,
                        updated=time.time(), error='ValueError: ' + 'a long path/' * 40 + ': restore it from a copy')))
    try: assert 'restore it from a copy' in page.open('').text()
    finally: (folder / 'progress.json').unlink()


def test_back_translation(page, workspace):
    "Hypotheses by rank, words from the address, a live bar, and a typed sentence by the shipped model, sent by keys."
    from paranmt_lab.jobs.progress import Progress
    page.open('back-translation', corpus='talk-reworded', words='prosím')
    assert set(page.address_bar()) >= COMPLETE['back-translation']
    found = ask(workspace, "SELECT source, reference FROM {pairs} WHERE rank = 1 AND (contains(lower(source), "
                "'prosím') OR contains(lower(reference), 'prosím'))")
    assert len(found) and f'{len(found)} sentences' in page.text()
    own = ask(workspace, 'SELECT rank, translation FROM {pairs} WHERE source = ? ORDER BY pair_id', found.source[0])
    shown = page.saved('hypotheses_save')
    assert shown.translation.tolist() == own.translation.tolist()[:len(shown)]
    assert shown['rank'].tolist() == sorted(shown['rank'])
    page.shot('back-translation')
    page.open('back-translation', corpus='talk-reworded', draw=7, many=3, order='trigram overlap, lowest first')
    assert '3 sentences, drawn with seed 7' in page.text()
    own = page.saved('hypotheses_save')
    assert own.trigram_overlap.is_monotonic_increasing and own.paraphrase_score.notna().all()
    page.tab.get_by_text('Two engines', exact=True).click()
    page.tab.wait_for_selector('text=sentences have the same translation')
    page.settle()
    pairs = page.saved('engines_save')
    assert len(pairs) == 10 and (pairs['first'] != pairs['second']).any(), 'greedy search and a beam differ'
    page.shot('back-translation-engines')
    page.tab.get_by_text('A sentence of your own', exact=True).click()
    box = page.tab.locator('.st-key-own_text textarea')
    box.fill('Kde je ten pes?\n<img src=x onerror=alert(1)>')
    box.press('Control+Enter')
    page.tab.wait_for_selector('text=2 sentences in')
    table = page.saved('own_table_save')
    assert table.groupby('source', sort=False).size().tolist() == [4, 4] and 'dog' in table.translation[0]
    assert not page.tab.query_selector('[data-testid=stMain] img')
    page.shot('back-translation-own')
    with Progress(1000, 'sentences', workspace / 'corpora/talk-reworded', every=0, show=False) as job:
        job.advance(250, pieces_per_second=34.)
        page.open('back-translation')
        assert '250 of 1,000 sentences' in page.text() and '34 target tokens a second' in page.text()
        page.shot('back-translation-live')


def test_negatives(page, workspace):
    "Negatives on the page are the most similar sentences that were allowed, found here by comparing with all of them."
    from paranmt_lab.encoders.sentence_encoder import SentenceEncoder
    page.open('negatives', run='word-trigram-m20', probe=30)
    assert set(page.address_bar()) == COMPLETE['negatives']
    table = page.saved('negatives_save').query("of == 'reference'")
    assert table.M.tolist() == [1, 20, 40] and table.cosine.is_monotonic_increasing
    hand = page.tab.inner_text('.st-key-hand')
    assert 'M = 20 is a mega-batch of 20 mini-batches = 1,000 pairs' in page.text()
    encoder = SentenceEncoder.load(workspace / 'runs/word-trigram-m20/encoder')
    pairs = ask(workspace, 'SELECT * FROM {pairs}').set_index('pair_id')
    unit = lambda text: (lambda v: v / np.linalg.norm(v))(encoder.encode([text])[0])
    probe = unit(pairs.reference[30])
    for row in table.itertuples():
        loss = max(0, .4 - row.cosine_partner + row.cosine)
        assert f'Negative, M = {row.M}\n\n{row.negative}\n\n{row.cosine:.3f}\n\n{loss:.3f}' in hand
        assert row.negative == pairs.loc[row.negative_pair_id, row.negative_side]
        assert pairs.segment[row.negative_pair_id] != pairs.segment[30]
        assert abs(float(unit(row.negative) @ probe) - row.cosine) < 1e-4
    page.shot('negatives')
    page.open('negatives', run='word-trigram-m20')  # the hardest sentence first
    walk = []
    for key in 'nnp':
        walk.append((page.address_bar()['probe'], page.address_bar()['side']))
        page.tab.locator('h1').click()
        page.after(page.tab.keyboard.press, key)
    probe = page.address_bar()['probe']
    assert len({str(place) for place in walk}) == 3 and (probe, page.address_bar()['side']) == walk[1]
    hardest = page.saved('negatives_save').query(f"of == '{walk[1][1][0]}' and M == 20")
    assert (hardest.cosine_partner - hardest.cosine).item() < .2
    assert page.tab.title() == 'Mega-batch negatives · word-trigram-m20 · ParaNMT Lab'
    page.after(page.tab.get_by_role('link', name='Pair of the probe').click)
    assert page.address_bar()['pair'] == probe and page.tab.title().startswith('Pairs · ')


@pytest.mark.soak
def test_how_often_negatives_are_false(page, workspace):
    "False negatives are counted at each M in the background; the saved rows agree with each other."
    page.open('negatives', run='word-trigram-m20', second='run:trigram-m1', above='0.7')
    page.tab.wait_for_selector('.st-key-false_shares_save')
    shares = page.settle().saved('false_shares_save')
    assert shares.M.tolist() == [1, 10, 20, 40] * 2 and (shares.sentences > 100).all()
    top = shares[shares.criterion == 'cosine above 0.7'].set_index('M')
    assert top.share[40] >= top.share[1] and ((top.false / top.sentences - top.share).abs() < 1e-4).all()
    page.shot('negatives-false')


@pytest.mark.soak
def test_negatives_that_a_run_recorded(page, workspace):
    "A probe at each M and epoch, with its pool, as in negatives.parquet; the most suspect first, N goes on."
    recorded = pd.read_parquet(workspace / 'runs/word-trigram-m20/negatives.parquet')
    page.open('negatives', run='word-trigram-m20', view='recorded', m=1, epoch=2)
    assert f'{recorded.pair_id.nunique()} probes, {recorded.epoch.nunique()} epochs' in page.text()
    order = recorded[(recorded.megabatch == 1) & (recorded.epoch == 1)].assign(
        gap=lambda f: f.cosine_partner - f.cosine_negative).sort_values(['gap', 'pair_id', 'side'])
    for probe in order.head(2).itertuples(): # the page counts epochs from 1, the file from 0
        rows = recorded[(recorded.pair_id == probe.pair_id) & (recorded.side == probe.side)].sort_values(
            ['megabatch', 'epoch'])
        saved = page.saved('recorded_rows_save')
        assert saved.M.tolist() == rows.megabatch.tolist()
        assert saved.epoch.tolist() == (rows.epoch + 1).tolist()
        assert saved.negative.tolist() == rows.negative.tolist()
        for shown, column in {'cosine': 'cosine_negative', 'cosine_partner': 'cosine_partner',
                              'pool': 'pool', 'pool_50': 'pool_50', 'pool_95': 'pool_95', 'pool_99': 'pool_99'}.items():
            np.testing.assert_allclose(saved[shown].astype(float), rows[column])
        hand = page.tab.inner_text('.st-key-hand')
        assert probe.sentence in hand and probe.negative in hand
        assert f'{probe.cosine_negative:.3f}' in hand and 'M = 1 is a mega-batch of 1 mini-batches' in page.text()
        page.tab.locator('h1').click()
        page.after(page.tab.keyboard.press, 'n')
    page.shot('negatives-recorded')
    old = recorded.drop(columns=[c for c in recorded if c.startswith('pool')]) # a run of before the pool was recorded
    try:
        old.to_parquet(workspace / 'runs/word-trigram-m20/negatives.parquet')
        assert 'not recorded' in page.open('negatives', run='word-trigram-m20', view='recorded').text()
    finally: recorded.to_parquet(workspace / 'runs/word-trigram-m20/negatives.parquet')


def events(workspace):
    "The annotation database, read without the package."
    file = workspace / 'annotations.sqlite'
    if not file.exists(): return []
    with closing(sqlite3.connect(file)) as db:
        return [(annotator, kind, json.loads(payload))
                for annotator, kind, payload in db.execute('SELECT annotator, kind, payload FROM events ORDER BY id')]


def test_flag_key_of_negatives(page, workspace):
    "The key of a row flags its negative by an event, and takes it back by another; to look or to type writes nothing."
    before = len(events(workspace))
    page.open('negatives', run='word-trigram-m20', probe=30)
    assert page.tab.locator('.st-key-flag_2 button').first.is_disabled()  # a flag has an author
    page.open('negatives', run='word-trigram-m20', probe=30, annotator='ada')
    table = page.saved('negatives_save').query("of == 'reference'").set_index('M')
    page.tab.get_by_label('Probe (pair id)').press('2')  # a digit of a field, which is no flag
    page.tab.keyboard.press('Backspace')
    assert len(events(workspace)) == before
    button = lambda label: page.tab.get_by_role('button', name=f'{label} Shortcut 2', exact=True)
    for flagged in (True, False, True):
        page.tab.locator('h1').click()
        page.tab.keyboard.press('2')
        button('Flagged' if flagged else 'Flag').wait_for()
        page.settle()
        annotator, kind, said = events(workspace)[-1]
        assert (annotator, kind) == ('ada', 'false negative')
        assert ((said['corpus'], said['pair_id'], said['side'], said['flagged'], said['run'], said['M'])
                == ('talk-reworded', 30, 'reference', flagged, 'word-trigram-m20', 20))
        assert ((said['negative'], said['negative_pair_id'], said['negative_side'])
                == (table.negative[20], table.negative_pair_id[20], table.negative_side[20]))
    assert len(events(workspace)) == before + 3
    assert 'False negatives flagged in talk-reworded: 1' in page.text() and '1 joined so far' in page.text()
    page.shot('negatives-flagged')
    page.tab.keyboard.press('2')
    button('Flag').wait_for()


def logged(workspace, run):
    "metrics.jsonl, read without the package."
    return pd.DataFrame([json.loads(line) for line in (
        workspace / 'runs' / run / 'metrics.jsonl').read_text().splitlines()]).groupby('step').last().reset_index()


def test_training(page, workspace):
    "Figures of two runs are those of their files; the table says in what they differ."
    names = ['word-trigram-m20', 'trigram-m1']
    page.open('training', runs=names)
    assert set(page.address_bar()) == COMPLETE['training']
    saved = page.saved('metrics_save').replace('', np.nan)
    for name in names:
        own, file = saved[saved.run == name], logged(workspace, name)
        for figure in ('step', 'epoch', 'loss', 'active', 'cosine_pairs',
                       'cosine_negatives', 'pairs_per_second', 'development'):
            np.testing.assert_allclose(own[figure].astype(float), file[figure].astype(float))
    facts = page.table('facts').set_index('fact')
    assert facts.loc['megabatch'].to_dict() == {'word-trigram-m20': '20', 'trigram-m1': '1'}
    assert not {'epochs', 'dim'} & set(facts.index)
    for name in names:
        assert facts[name]['development'] == f'{logged(workspace, name).development.iloc[-1]:.1f}'
        assert facts[name]['commit'] == json.loads((workspace / 'runs' / name / 'done.json').read_text())['commit']
        assert facts[name]['corpus'] == 'talk-reworded'
    for figure in ('loss', 'active', 'development', 'pairs_per_second', 'cosine_pairs', 'cosine_negatives'):
        assert page.tab.query_selector(f'.st-key-curve_{figure} .vega-embed'), figure
    sets = [logged(workspace, name).development_set.dropna().iloc[0] for name in names]
    titles = page.tab.locator('[class*=st-key-curve_development]').all_inner_texts()
    assert len(titles) == len(set(sets)) and all(any(name in title for title in titles) for name in sets)
    text = '<img src=x onerror="window.hacked = 1"> **good** $x$'
    page.tab.locator('.st-key-notes summary').click()
    page.tab.locator('.st-key-notes textarea').fill(text)
    page.after(page.tab.locator('.st-key-save_note button').click)
    assert (workspace / 'runs' / names[0] / 'note.txt').read_text() == text + '\n'
    rows = page.table('run_table').set_index('run')
    for name in names:
        scores = logged(workspace, name).set_index('step').development.dropna()
        assert (float(rows.best[name]), float(rows['best at step'][name])) == (scores.max(), scores.idxmax())
    assert (rows.note[names[0]], page.tab.evaluate('window.hacked')) == (text, None)
    page.shot('training')
    page.open('training', runs=names, over='seconds', smooth=50).shot('training-seconds')
    assert 'Each point is the mean of 50 lines.' in page.tab.inner_text('[data-testid=stSidebar]')


@pytest.fixture
def at_work(workspace):
    "A run at work: its folder and its progress, which somebody keeps writing."
    from paranmt_lab.jobs.progress import Progress
    from paranmt_lab.jobs.run import Run
    run = Run.create(workspace / 'runs', 'at-work', json.loads((workspace / 'runs/trigram-m1/config.json').read_text())
                     | dict(name='at-work', model='<b>bold</b>'))
    over = threading.Event()
    run.log(100, epoch=0.1, loss=0.9)
    with Progress(1000, 'pairs', run.folder, every=0, show=False) as job:
        def breathe():
            while not over.wait(0.5): job.advance(0)
        breath = threading.Thread(target=breathe)
        breath.start()
        def leave():
            "Join the thread first: a report of its own after the last one would say that the job runs."
            over.set()
            breath.join()
            job.__exit__(None, None, None)
        try: yield run, job, leave
        finally:
            over.set()
            breath.join()
    shutil.rmtree(run.folder)


def test_training_live(page, workspace, at_work):
    "Progress and curve of a run move without a click; two clicks stop it by writing the file that the run looks for."
    run, job, leave = at_work
    time.sleep(0.2)
    job.advance(250)
    page.open('training')
    page.tab.wait_for_selector('text=250 of 1,000 pairs')
    assert 'left' in page.text() and 'a second' in page.text()
    assert page.table('facts').set_index('fact')['at-work']['step'] == '100'
    page.shot('training-live')
    run.log(200, epoch=0.2, loss=0.7)
    job.advance(300)
    page.tab.wait_for_selector('text=550 of 1,000 pairs')
    for _ in range(60):
        if page.table('facts').set_index('fact')['at-work']['step'] == '200': break
    else: raise AssertionError('the table did not follow')
    page.tab.locator('.st-key-stop_at-work button').first.click()
    page.tab.wait_for_selector('.st-key-really_at-work button')
    assert not (run.folder / 'stop').exists() and not job.stopping
    page.tab.locator('.st-key-really_at-work button').first.click()
    page.tab.wait_for_selector('text=Asked to stop')
    assert (run.folder / 'stop').exists() and job.stopping
    leave()
    page.tab.wait_for_selector('text=No run is at work now.')
    # where more than a minute has gone by since it last advanced, the page has called it silent first
    for _ in range(60):
        page.settle()
        if page.table('facts').set_index('fact')['at-work']['status'] == 'stopped': break
    else: raise AssertionError('the table did not say that it was stopped')


def test_training_names_what_is_broken(page, workspace):
    "A torn config, torn metrics and a failed run are named, their text is inert, and the good run is drawn."
    from paranmt_lab.jobs.progress import Progress
    from paranmt_lab.jobs.run import Run
    runs, evil = workspace / 'runs', '<img src=x onerror="window.hacked = 1"> ![x](http://198.51.100.7/x.png) $x^2$'
    made = [Run.create(runs, name, dict(corpus=evil, model=evil)).folder
            for name in ('broken-config', 'broken-metrics', 'died')]
    try:
        (made[0] / 'config.json').write_text('{"corpus": "ta')
        (made[1] / 'metrics.jsonl').write_bytes(
            b'null\n\xff\xfe\n{"step": 1, "loss": 0.5, "note": "<b>", "development": 9, "development_set": '
            + json.dumps(evil).encode() + b'}\n{"step": 2, "lo')
        with pytest.raises(RuntimeError), Progress(5, folder=made[2], show=False): raise RuntimeError(evil)
        page.open('training', runs=['broken-metrics', 'died', 'trigram-m1'])
        text = page.text()
        assert 'broken-config cannot be read' in text
        assert '3 lines of metrics.jsonl of broken-metrics cannot be read' in text
        assert f'died: failed at 0 of 5 pairs. RuntimeError: {evil}' in text
        assert page.table('facts').set_index('fact').loc['status'].tolist() == ['not started', 'failed', 'finished']
        assert page.tab.query_selector('.st-key-curve_loss .vega-embed')
        assert page.tab.evaluate('window.hacked') is None
        assert not page.tab.query_selector('[data-testid=stMain] img, [data-testid=stMain] iframe')
        page.shot('training-broken')
    finally:
        for folder in made: shutil.rmtree(folder)


@pytest.mark.soak
def test_hostile_text_of_recorded_negatives_is_inert(page, workspace):
    "Sentences of a corpus in hand are shown letter for letter."
    from app_workspace import HOSTILE
    from paranmt_lab.jobs.run import Run
    run = Run.create(workspace / 'runs', 'hostile-run', dict(corpus='hostile', megabatch=2, margin=0.4))
    try:
        rows = [dict(epoch=e, megabatch=m, pair_id=i, side=1, negative_pair_id=(i + 1) % len(HOSTILE), negative_side=2,
                     cosine_partner=0.5, cosine_negative=0.4 + 0.01 * i, sentence=text, partner=HOSTILE[-1 - i],
                     negative=HOSTILE[i - 1]) for e in (0, 1) for m in (1, 2) for i, text in enumerate(HOSTILE)]
        pd.DataFrame(rows).to_parquet(run.folder / 'negatives.parquet')
        for i, text in enumerate(HOSTILE):
            page.open('negatives', run='hostile-run', view='recorded', recorded=f'{i}@reference', annotator='ada')
            if text.isascii() and text.isprintable() and len(text) < 2000:
                assert ' '.join(text.split()) in ' '.join(page.tab.inner_text('.st-key-hand').split())
            if i == 0:
                page.tab.locator('h1').click()
                page.tab.keyboard.press('2')
                page.tab.get_by_role('button', name='Flagged Shortcut 2').wait_for()
                page.settle().shot('hostile-negatives')
                assert events(workspace)[-1][2]['sentence'] == text
        assert_inert(page)
    finally: shutil.rmtree(run.folder)


MAP = '.st-key-lasso_map canvas.above'


def draw_lasso(page, spots, key='lasso_map'):
    "Draw a line through places of a map, given as shares of its width and height."
    canvas = page.tab.locator(f'.st-key-{key} canvas.above')
    canvas.scroll_into_view_if_needed()
    edge = canvas.bounding_box()
    places = [(edge['x'] + x * edge['width'], edge['y'] + y * edge['height']) for x, y in spots]
    page.tab.mouse.move(*places[0])
    page.tab.mouse.down()
    for place in places[1:]: page.tab.mouse.move(*place, steps=4)
    page.after(page.tab.mouse.up)


def inside(places, text):
    "Pairs around which the outline of an address turns, by the angles of its corners, and the corners."
    numbers = np.array(text.partition(':')[2].split(','), float).reshape(-1, 2)
    towards = np.vstack([numbers, numbers[:1]])[:, None] - places[['x', 'y']].to_numpy()
    angles = np.diff(np.arctan2(towards[..., 1], towards[..., 0]), axis=0)
    turns = ((angles + np.pi) % (2 * np.pi) - np.pi).sum(0).round(3)
    return set(places.pair_id[turns != 0]), numbers


def place_of(page, places, row):
    "Where the script draws a sentence, in pixels of the page."
    page.tab.locator(MAP).scroll_into_view_if_needed()
    edge = page.tab.locator(MAP).bounding_box()
    x, y = ((row[axis] - places[axis].min()) / (places[axis].max() - places[axis].min()) for axis in ('x', 'y'))
    return edge['x'] + 14 + x * (edge['width'] - 28), edge['y'] + 14 + (1 - y) * (edge['height'] - 28)


def newest_map(workspace):
    maps = (workspace / 'corpora/talk-reworded/cache/maps').glob('*.parquet')
    return pd.read_parquet(max(maps, key=lambda file: file.stat().st_mtime))


def test_embedding_map(page, workspace):
    "A map is made once; a lasso by mouse or by keyboard lists exactly the pairs inside it, a click the neighbours."
    wanted = dict(corpus='talk-reworded', encoder='run:word-trigram-m20', pairs=500)
    page.open('embedding-map', **wanted, colour='corpus')
    assert set(page.address_bar()) == COMPLETE['embedding-map']
    make_maps(page)
    draw_lasso(page, [(.15, .15), (.6, .15), (.6, .7), (.15, .7)])
    listed, places = page.saved('brushed_save'), newest_map(workspace)
    assert len(places) == 500 and 0 < len(listed) < 500 and f'{len(listed):,} pairs inside the lasso' in page.text()
    assert set(listed.pair_id) == inside(places, *page.address_bar()['lasso'])[0]
    stored = ask(workspace, 'SELECT pair_id, reference FROM {pairs}').set_index('pair_id')
    assert stored.reference[listed.pair_id].tolist() == listed.reference.tolist()
    page.shot('embedding-map')
    press = page.tab.locator(MAP).press
    page.after(lambda: press('Escape'))
    assert 'lasso' not in page.address_bar() and 'pairs inside' not in page.text()
    corners = [['ArrowLeft', 'ArrowUp'] * 8, ['ArrowRight'] * 20, ['ArrowDown'] * 14, ['Shift+ArrowDown'] * 5]
    for keys in corners:
        for key in keys: press(key)
        press('Space')
    press('Backspace')
    page.after(lambda: press('Enter'))
    ids, numbers = inside(places, *page.address_bar()['lasso'])
    assert len(numbers) == 3, 'the fourth corner was taken back'
    assert set(page.saved('brushed_save').pair_id) == ids
    page.open('embedding-map', **wanted, colour=SCORE, limit=SCORE, keep='0.5:1')
    page.tab.wait_for_selector(MAP)
    scores = ask(workspace, f'SELECT pair_id, "{SCORE}" AS score FROM {{pairs}} POSITIONAL JOIN {{m:{SCORE}}}')
    removed = (~(scores.set_index('pair_id').score[places.pair_id] > .5)).sum()
    assert 0 < removed < 500 and f'removes {removed} of 500 sentences' in page.settle().text()
    corner = places.loc[(places.x - places.y).idxmin()]
    page.after(page.tab.mouse.click, *place_of(page, places, corner))
    page.tab.wait_for_selector('.st-key-near_box')
    assert page.settle().address_bar()['point'] == [f'{corner.pair_id}:reference']
    near = page.saved('near_save')
    assert len(near) == 10 and stored.reference[corner.pair_id] not in set(near.sentence) and near.sentence.is_unique
    assert near.cosine.is_monotonic_decreasing
    press('ArrowRight')
    page.after(lambda: press('Enter'))
    assert page.address_bar()['point'] != [f'{corner.pair_id}:reference'], 'Enter picks the sentence at the crosshair'
    page.shot('embedding-map-score')


def make_maps(page):
    "Make the maps that the page asks for, one after another."
    while page.tab.get_by_role('button', name='Make the map').count():
        page.tab.get_by_role('button', name='Make the map').click()
        page.tab.wait_for_function("map => document.body.innerText.includes('so far')"
                                   " || document.querySelector(map)", arg=MAP)
        page.tab.wait_for_function("() => !document.body.innerText.includes('so far')")
        page.settle()
    page.tab.wait_for_selector(MAP)
    page.tab.wait_for_function("() => !document.body.innerText.includes('Placing your')")
    return page.settle()


@pytest.mark.soak
def test_two_maps_are_linked_and_a_lasso_is_saved_and_sent(page, workspace):
    "Maps by two encoders with typed sentences; the pairs of a lasso become a selection and a campaign."
    names = ['run:word-trigram-m20', 'run:trigram-m1']
    page.open('embedding-map', corpus='talk-reworded', encoder=names[0], beside=names[1], pairs=500, colour='corpus',
              typed='I do not know where he is.\nQqqq.')
    assert all(name in make_maps(page).text() for name in names)
    page.shot('embedding-map-two')
    draw_lasso(page, [(.1, .1), (.6, .1), (.6, .6), (.1, .6)])
    ids = set(page.saved('brushed_save').pair_id)
    assert 0 < len(ids) < 500
    page.shot('embedding-map-linked')
    page.tab.goto(page.tab.url)
    assert set(page.settle().saved('brushed_save').pair_id) == ids, 'the address holds the lasso'
    draw_lasso(page, [(.05, .05), (.6, .05), (.6, .95), (.05, .95)], 'second_lasso_map')
    both = set(page.saved('brushed_save').pair_id)
    assert both < ids, 'with a lasso on each map the pairs inside both'
    page.tab.get_by_text('Save these pairs as a selection').click()
    save, send = page.tab.get_by_test_id('stForm').all()
    save.get_by_label('Name').fill('clump')
    save.get_by_role('button', name='Save').click()
    page.tab.get_by_text(f'Selection clump keeps {len(both):,} pairs.').wait_for()
    record = json.loads((workspace / 'corpora/talk-reworded/selections/clump.json').read_text())
    assert {int(id) for id in re.findall(r'\d+', record['selection']['where'])} == both
    send.get_by_label('Name').fill('clump')
    send.get_by_role('button', name='Draw').click()
    page.tab.get_by_text('Campaign clump has').wait_for()
    with closing(sqlite3.connect(workspace / 'annotations.sqlite')) as db:
        drawn = db.execute("SELECT pair_id FROM items WHERE campaign = 'clump'").fetchall()
    assert drawn and {pair for pair, in drawn} <= both
    assert 'paranmt select talk-reworded clump --where' in page.text()
    page.tab.emulate_media(color_scheme='dark')
    page.settle().shot('embedding-map-two-dark')


@pytest.mark.soak
def test_a_lasso_lists_the_pairs_inside_it(page, workspace):
    "A lasso of any form, also from the address; a lasso of another map holds nothing."
    wanted = dict(corpus='talk-reworded', encoder='run:word-trigram-m20', pairs=500, colour='corpus', seed=5)
    make_maps(page.open('embedding-map', **wanted))
    draw_lasso(page, [(.1, .1), (.6, .1), (.6, .4), (.3, .4), (.3, .9), (.1, .9)])
    [text] = page.address_bar()['lasso']
    ids, numbers = inside(newest_map(workspace), text)
    assert len(numbers) <= 10 and 0 < len(ids) < 400, 'the six corners, and little more'
    assert set(page.saved('brushed_save').pair_id) == ids and f'{len(ids)} pairs inside the lasso' in page.text()
    page.shot('embedding-map-lasso')
    page.open('embedding-map', **wanted, lasso=text)
    assert set(page.saved('brushed_save').pair_id) == ids, 'the address holds the lasso'
    page.open('embedding-map', **wanted, lasso='a1b2c3:0,0,1,0,1,1')
    assert 'lasso' not in page.address_bar(), 'a lasso of another map is not applied'


@pytest.mark.soak
def test_edges_and_a_highlight_on_the_map(page, workspace):
    "Both sides of a pair are joined by an edge, a text is counted and highlighted, and the address keeps both."
    wanted = dict(corpus='talk-reworded', encoder='run:word-trigram-m20', pairs=500, colour='side', sides='both sides')
    page.open('embedding-map', **wanted, find='THE ', edges='True')
    make_maps(page).shot('embedding-map-edges')
    places = max((workspace / 'corpora/talk-reworded/cache/maps').glob('*.parquet'), key=lambda p: p.stat().st_mtime)
    stored = ask(workspace, 'SELECT pair_id, reference, translation FROM {pairs}').set_index('pair_id')
    texts = [stored.loc[row.pair_id, row.side] for row in pd.read_parquet(places).itertuples()]
    assert len(texts) == 500 and f"THE is in {sum('the' in t.lower() for t in texts)} sentences." in page.text()
    draw_lasso(page, [(.1, .1), (.7, .1), (.7, .8), (.1, .8)])
    assert 'pairs inside the lasso' in page.text()
    assert (page.address_bar()['find'], page.address_bar()['edges']) == (['THE '], ['True'])


@pytest.mark.soak
def test_map_of_many_domains(page, workspace):
    "A map says how far it is, goes on when its reader leaves, and gives a colour to the five largest of 31 domains."
    from dataclasses import replace

    from paranmt_lab.corpora.query import Corpus
    from paranmt_lab.ground.settings import settings
    pairs = ask(workspace, 'SELECT reference, translation FROM {pairs} LIMIT 2000')
    domains = [f'domain {int(31 * (i / len(pairs)) ** 1.5):02}' for i in range(len(pairs))]
    Corpus.create('domains', replace(settings(), workspace=workspace)).write_pairs(0, pairs.assign(corpus=domains))
    wanted = dict(corpus='domains', encoder='run:word-trigram-m20', pairs=2000, colour='corpus', seed=7)
    page.open('embedding-map', **wanted)
    page.tab.get_by_role('button', name='Make the map').click()
    page.tab.wait_for_selector('.stProgress >> text=so far')
    page.tab.screenshot(path=SHOTS / 'embedding-map-progress.png')
    page.open('')
    page.open('embedding-map', **wanted)
    assert not page.tab.get_by_role('button', name='Make the map').is_visible(), 'the map was not begun anew'
    page.tab.wait_for_selector(MAP)
    page.settle().shot('embedding-map-domains')
    assert len(list((workspace / 'corpora/domains/cache/maps').glob('*.parquet'))) == 1


def test_neighbours(page, workspace):
    "Both encoders' nearest sentences are those of a product over all; a sentence is typed, kept and inert."
    from dataclasses import replace

    from paranmt_lab.corpora.query import Corpus
    from paranmt_lab.ground.models import open_model
    from paranmt_lab.ground.settings import settings
    lab = replace(settings(), workspace=workspace)
    names = ['run:trigram-m1', 'run:word-trigram-m20']
    chosen = dict(corpus='talk-reworded', encoder=names[0], beside=names[1], neighbours=7)
    page.open('neighbours', **chosen, sentence='I do not know where he is.')
    page.tab.wait_for_selector('.st-key-near_1_box canvas', state='attached')
    page.settle()
    texts = Corpus.open('talk-reworded', lab).frame(['reference']).reference.unique()
    for place, name in enumerate(names):
        encoder = open_model(name, lab)
        cosines = encoder.similarity_pairwise(['I do not know where he is.'] * len(texts), list(texts))
        shown = page.saved(f'near_{place}_save')
        assert shown.sentence.tolist() == list(texts[np.argsort(-cosines, kind='stable')[:7]])
        np.testing.assert_allclose(shown.cosine, np.sort(cosines)[::-1][:7], atol=1e-5)
    assert f'{len(texts):,} sentences; the ticks' in page.text()
    page.shot('neighbours')
    page.tab.get_by_label('Sentence', exact=True).fill('<img src=x onerror="window.hacked = 1"> **late**')
    page.tab.keyboard.press('Enter')
    page.settle()
    assert page.address_bar()['sentence'] == ['<img src=x onerror="window.hacked = 1"> **late**']
    page.open('neighbours', **chosen | dict(corpus='hostile', column='translation'))
    page.tab.wait_for_selector('.st-key-near_1_box canvas', state='attached')
    page.settle().shot('hostile-neighbours')
    assert_inert(page)


def saved_and_sent(page, workspace, found):
    "Save the shown paraphrases as pairs and send them to a campaign; the commands shown find both there already."
    from typer.testing import CliRunner

    from paranmt_lab.cli.main import app
    page.tab.get_by_text('Save these pairs in a corpus').click()
    page.tab.get_by_role('button', name='Save', exact=True).click()
    page.tab.get_by_text('3 pairs added to the corpus generated').wait_for()
    rows = ask(workspace, 'SELECT reference, translation, "rank" FROM {pairs} ORDER BY pair_id', corpus='generated')
    assert rows.translation.tolist() == [h.text for h in found] and set(rows.reference) == {'It is raining.'}
    page.tab.locator('.st-key-campaign_name input').fill('reworded')
    page.tab.get_by_role('button', name='Send', exact=True).click()
    page.tab.get_by_text('has 3 pairs').wait_for()
    page.settle().shot('generate-saved')
    wide = dict(PARANMT_WORKSPACE=str(workspace), COLUMNS='200')
    commands = page.tab.locator('.st-key-campaign_name').locator('xpath=ancestor::*[@data-testid="stForm"]')
    for line in commands.locator('code').inner_text().strip().splitlines():
        _, *words = shlex.split(line)
        result = CliRunner().invoke(app, words, env=wide)
        assert result.exit_code == 0, result.output
        assert ('already' if words[0] == 'generate' else '3 pairs') in result.output
    assert len(ask(workspace, 'SELECT * FROM {pairs}', corpus='generated')) == 3


def test_generate(page, workspace):
    "Paraphrases on the page are those of the engine; they are saved as pairs and sent to a campaign."
    from dataclasses import replace

    from paranmt_lab.engines.protocol import Decoding
    from paranmt_lab.ground.models import open_model
    from paranmt_lab.ground.settings import settings
    chosen = dict(model='generator:tiny', beam=4, paraphrases=3)
    page.open('generate', **chosen, sentence='It is raining.')
    page.tab.wait_for_selector('.st-key-paraphrases_box canvas', state='attached')
    engine = open_model('generator:tiny', replace(settings(), workspace=workspace, device='cpu'))
    [found] = engine.translate(['It is raining.'], Decoding(4, 3))
    shown = page.settle().saved('paraphrases_save')
    assert shown.paraphrase.tolist() == [h.text for h in found]
    np.testing.assert_allclose(shown.score, [h.score for h in found], atol=1e-4)
    page.shot('generate')
    saved_and_sent(page, workspace, found)


@pytest.mark.soak
def test_what_is_no_sentence_of_the_generator_gets_an_answer(page):
    "Nothing, far too much and another language are answered in words; hostile text is inert."
    chosen = dict(model='generator:tiny', beam=4, paraphrases=3)
    for sentence, answer in ((' ', 'Type an English sentence'), ('word ' * 500, '500 words'),
                             ('Трамвай сегодня опаздывает.', 'does not look like English')):
        page.open('generate', **chosen, sentence=sentence)
        page.settle()
        assert answer in page.text()
    page.open('generate', **chosen, sentence='<img src=x onerror="window.hacked = 1"> **late**')
    page.settle()
    assert page.tab.evaluate('window.hacked') is None


def ranking(page):
    "Texts of the ranked table's cells, by name and kind of the row."
    cells = page.tab.locator('.st-key-standings_table tr').evaluate_all(
        "rows => rows.map(r => [...r.cells].map(c => [...c.querySelectorAll('b, small')].map(t => t.textContent)"
        ".join(' ') || c.textContent))")
    return pd.DataFrame([dict(zip(cells[0], row)) for row in cells[1:]]).set_index(cells[0][0])


def test_results(page, workspace):
    "The paper's table with our systems: rows are those of the paper's file and of the result files."
    from paranmt_lab.evaluation.standings import standings
    page.open('results')
    assert set(page.address_bar()) == COMPLETE['results']
    table, paper = ranking(page), standings('paranmt.8')
    for row in paper[(paper.kind == 'the paper') & paper.column.isin(['STS 2012', 'STS 2014'])].itertuples():
        assert abs(float(table[row.column][f'{row.row} paper'] or 'nan') - row.value) < 0.051, row
    assert {'paper', 'shipped', 'measured', 'peer'} <= {name.split()[-1] for name in table.index}
    assert table.difference['WORD,TRIGRAM paper'] == 'chosen row'
    page.shot('results')
    page.after(page.tab.locator('.st-key-standings_table tr', has_text='paraphrase-scorer-2').click)
    assert page.address_bar()['row'] == ['paraphrase-scorer-2']
    assert ranking(page).difference['paraphrase-scorer-2 shipped'] == 'chosen row'
    page.after(page.tab.locator('.st-key-standings_table th button', has_text='STS 2014').click)
    assert page.address_bar()['figure'] == ['STS 2014'] and page.address_bar()['row'] == ['paraphrase-scorer-2']
    page.open('results', table='paranmt.9', row='WORD')
    assert ranking(page).test['WORD paper'] == '79.2'
    page.open('results', view='By data set')
    table = page.table('by_dataset_table').set_index(['task', 'data set'])
    for run in ('trigram-m1', 'word-trigram-m20', 'token-overlap'):
        file = f'{workspace}/runs/{run}/results.parquet'
        pearson = duckdb.sql(f"SELECT task, dataset, value FROM read_parquet('{file}') WHERE metric = 'pearson'").df()
        stored = pearson.set_index(['task', 'dataset']).value
        for key, cell in table[run].items():
            if pd.isna(stored[key]): assert cell in ('not available', 'None', '')
            else: assert abs(float(cell) - 100 * stored[key]) < 0.051
    page.shot('results-by-dataset')


@pytest.mark.soak
def test_results_by_difference_and_by_pair(page, workspace):
    "Differences from a row; a gap shows the command that fills it; the largest errors are listed."
    page.open('sts-results', row='WORD')
    table = ranking(page)
    assert table['95 %']['paraphrase-scorer-2 shipped'].startswith('+') and table['95 %']['TRIGRAM paper'] == '–'
    page.open('results', view='By data set', encoder='model:paraphrase-scorer', against='model:paraphrase-scorer-2')
    assert page.tab.locator('.st-key-differences_table').count() or 'No set of STS' in page.text()
    page.shot('results-difference')
    page.open('results', view='By data set')
    page.tab.locator('.st-key-gaps summary').click()
    commands = page.tab.locator('.st-key-gaps code').all_inner_texts()
    assert any(command.strip().endswith('--tasks STS13') for command in commands), commands
    page.open('results', view='Pairs', set='graded sample')
    assert 'Pearson' in page.text() and 'largest errors' in page.text()
    page.shot('results-pairs')


def test_two_runs_are_compared(page, workspace):
    "Settings that differ, differences of results as the files have them, and pairs that both encoders rank apart."
    page.open('compare', run='trigram-m1', other='word-trigram-m20', pairs=500)
    assert set(page.address_bar()) == COMPLETE['compare']
    configs = [json.loads((workspace / 'runs' / name / 'config.json').read_text())
               for name in ('trigram-m1', 'word-trigram-m20')]
    differing = {k for k in {**configs[0], **configs[1]} if configs[0].get(k) != configs[1].get(k)}
    assert set(page.table('differing').setting) <= differing and f'{len(differing)} settings differ' in page.text()
    figures = page.table('figures')[['first', 'second', 'difference']].astype(float)
    np.testing.assert_allclose(figures['first'] - figures['second'], figures.difference, atol=1e-6)
    gaps = page.saved('disagreements_save').gap.abs()
    assert gaps.is_monotonic_decreasing and gaps[0] > 0
    page.shot('compare')


def assert_inert(page):
    "No text of a corpus has become a script or a picture."
    assert page.tab.evaluate('window.hacked') is None
    assert not page.tab.query_selector('[data-testid=stMain] iframe, '
                                       '[data-testid=stMain] img[src*="198.51"], [data-testid=stMain] script')


def test_hostile_text_is_inert(page, workspace):
    "Text of a corpus is shown and not obeyed, in the list, in the table and in what is saved."
    page.open('pairs', corpus='hostile')
    assert page.tab.locator('.st-key-reading article').count() == 8
    page.shot('hostile-reading')
    page.open('pairs', corpus='hostile', view='table')
    saved = page.saved('pairs_save')
    stored = ask(workspace, 'SELECT pair_id, reference FROM {pairs}', corpus='hostile').set_index('pair_id')
    back = lambda t: re.sub(r'\\(.)', lambda m: {'t': '\t', 'n': '\n', 'r': '\r', '0': '\0', '\\': '\\'}[m[1]], t)
    assert [back(t) for t in saved.reference] == stored.reference[saved.pair_id].tolist()
    page.shot('hostile-pairs')
    page.open('', corpus='hostile').shot('hostile-overview')
    assert_inert(page)


@pytest.mark.soak
def test_hostile_text_on_a_map_is_inert(page):
    page.open('embedding-map', corpus='hostile', encoder='run:trigram-m1', pairs=500, colour='corpus')
    make_maps(page)
    draw_lasso(page, [(.02, .02), (.85, .02), (.85, .97), (.02, .97)])
    page.shot('hostile-embedding-map')
    assert_inert(page)


CRAFTED = ['../../etc', '..', '/etc/passwd', 'a/b', 'talk-reworded/../sample',
           '.hidden', 'no-such-name', '![x](http://198.51.100.7/x.png)', '<b>x</b>', "x' OR 1=1 --", 'x' * 500]


@pytest.mark.parametrize('path,key', [
    ('', 'corpus'), ('neighbours', 'beside'), ('training', 'runs'), soak('pairs', 'by'),
    soak('results', 'systems'), soak('embedding-map', 'encoder'), soak('', 'run'), soak('pairs', 'corpus'),
    soak('negatives', 'run'),
    soak('pairs', 'score'), soak('pairs', 'domain'), soak('back-translation', 'corpus'),
    soak('negatives', 'view'), soak('negatives', 'side'), soak('training', 'over'), soak('embedding-map', 'corpus'),
    soak('embedding-map', 'colour'), soak('generate', 'model')])
def test_crafted_names_are_refused(page, path, key):
    "Names in the address that are not on the list are refused with a message, and nothing else is shown."
    for name in CRAFTED if (path, key) in (('pairs', 'corpus'), ('negatives', 'run')) else CRAFTED[:1]:
        page.open(path, **({'corpus': 'talk-reworded'} if path == 'pairs' and key != 'corpus' else {}),
                  **{key: name})
        assert 'cannot show' in page.tab.inner_text('[data-testid=stAlert]')
        assert name[:40] in page.text() or repr(name)[1:40] in page.text()
    if key == 'corpus' and path: page.shot(f'refused-{path}')


# Rules of axe-core for WCAG 2.1 AA. Streamlit's own navigation breaks two: its sections lie inside the list of links.
RULES = """axe.run({runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa'],
                  rules: {list: {enabled: false}, listitem: {enabled: false}}})"""


@pytest.mark.soak
@pytest.mark.parametrize('scheme', ['light', 'dark'])
def test_every_page_is_accessible(browser, app, scheme):
    "Contrast, names of controls and roles of every page, by axe-core, in a light and a dark room."
    from axe_playwright_python.base import AXE_FILE_PATH
    page = Page(browser, app)
    page.tab.emulate_media(color_scheme=scheme)
    problems = {}
    for path in ('', *COMPLETE, 'annotate', 'generate'):
        page.open(path).shot(f'{path or "overview"}-{scheme}')
        page.tab.evaluate(AXE_FILE_PATH.read_text())
        for rule in page.tab.evaluate(RULES)['violations']:
            # an empty brush of Vega is a mark without a title
            targets = [node['target'][-1] for node in rule['nodes'] if 'brush' not in node['html']]
            if targets: problems[path, rule['id']] = targets
    assert not problems
    ground = page.tab.evaluate("getComputedStyle(document.querySelector('[data-testid=stApp]')).backgroundColor")
    assert (sum(map(int, re.findall(r'\d+', ground)[:3])) < 150) == (scheme == 'dark')
    page.tab.close()


# Milliseconds from a click on a link of the navigation until lines in place of the page, or its title, are there.
UNTIL_A_SIGN = """name => new Promise(done => {
  const links = [...document.querySelectorAll('[data-testid=stSidebarNav] a')];
  const link = links.find(a => a.innerText.trim().endsWith(name));
  const start = performance.now();
  const title = () => document.querySelector('[data-testid=stMain] h1')?.innerText.trim() == name;
  const look = () => document.querySelector('.paranmt-skeleton') || title()
    ? done(performance.now() - start) : requestAnimationFrame(look);
  link.click();
  look();
})"""


@pytest.mark.soak
def test_a_page_shows_at_once_that_it_is_being_drawn(own_page):
    "A sign of work within 300 ms on a quiet machine, none when the page is whole, and none when a choice changes it."
    page = own_page.open('pairs', corpus='talk-reworded')
    names = 'Training', 'Mega-batch negatives', 'Results', 'Back-translation', 'Overview', 'Pairs'
    waits = {}
    for name in names:
        waits[name] = page.tab.evaluate(UNTIL_A_SIGN, name)
        page.settle()
        assert not page.tab.locator('.paranmt-skeleton').count(), name
    assert sorted(waits.values())[len(waits) // 2] < 1000, waits
    page.open('pairs', corpus='talk-reworded', filter='trigram_overlap:0.1:0.7')
    page.tab.evaluate("""window.signs = 0;
        const look = () => { if (document.querySelector('.paranmt-skeleton')) window.signs++; };
        new MutationObserver(look).observe(document, {subtree: true, childList: true});""")
    page.tab.get_by_label('Trigram overlap, above', exact=True).fill('0.2')
    page.after(page.tab.keyboard.press, 'Enter')
    assert page.tab.evaluate('window.signs') == 0


def test_no_sign_of_work_stays_on_a_page_that_stops(page):
    "*Annotate* ends before its last line, since it needs a name first."
    page.open('annotate').settle()
    assert page.tab.get_by_text('Practise on 3 pairs first').is_visible()
    assert not page.tab.locator('.paranmt-skeleton').is_visible()


def test_empty_workspace(browser, tmp_path):
    "Every page of an empty workspace names the command that fills it, but for Results, which has what ships."
    from paranmt_lab.pages.harness import AppTest
    for module in ('overview', 'back_translation', 'pairs', 'compare',
                   'training', 'negatives', 'embedding_map', 'neighbours', 'results', 'generate'):
        script = (f"import os\nos.environ['PARANMT_WORKSPACE'] = {str(tmp_path)!r}\nos.environ['PARANMT_SETTINGS'] "
                  f"= {str(tmp_path / 'settings.ini')!r}\nfrom paranmt_lab.pages.{module} import page\npage()")
        (tmp_path / 'settings.ini').write_text('[paranmt]\n')
        before = dict(os.environ)
        try: at = AppTest.from_string(script, default_timeout=120).run()
        finally: os.environ.clear(); os.environ.update(before)
        names_a_command = any(c.value.startswith(('make ', 'paranmt ')) for c in at.code)
        assert not at.exception and names_a_command == (module != 'results'), module
        if module == 'results': assert len(at.get('bidi_component'))
        has_picture = (ROOT / f'paranmt_lab/assets/views/{module}.webp').exists()
        assert bool(at.get('image')) == has_picture == (module not in ('overview', 'results', 'generate')), module


def test_every_page_says_what_it_is_for(tmp_path, monkeypatch):
    "A sentence under the title and a guide that opens: on every page, also where a workspace is empty."
    import paranmt_lab.pages
    from paranmt_lab.pages.harness import AppTest
    (tmp_path / 'settings.ini').write_text('[paranmt]\n')
    monkeypatch.setenv('PARANMT_WORKSPACE', str(tmp_path))
    monkeypatch.setenv('PARANMT_SETTINGS', str(tmp_path / 'settings.ini'))
    pages = set(re.findall(r"\('(\w+)', '[\w -]+', '\w+'\)", (ROOT / 'app.py').read_text()))
    assert len(pages) > 10 and all((Path(paranmt_lab.pages.__path__[0]) / f'{name}.py').exists() for name in pages)
    for name in sorted(pages):
        at = AppTest.from_string(f'from paranmt_lab.pages.{name} import page\npage()', default_timeout=120).run()
        texts = [m.value for m in at.markdown]
        guide = next(i for i, text in enumerate(texts) if text.startswith('1. '))
        assert not at.exception and texts[guide + 1].endswith('.'), name
