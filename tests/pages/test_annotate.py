"""The page "Annotate" in a real Chromium: keys alone, undo, several people at once, trouble, a login.

What became of the ratings is read from the event log by SQL and not by the package. With
PICTURES=1 screenshots go to tests/screenshots/ (not committed) to be looked at."""
import os
import re
import resource
import signal
import sqlite3
import statistics
from contextlib import closing
from pathlib import Path

import pandas as pd
import pytest

from paranmt_lab.ground.wording import visible
from raters import CHROMIUM, Connection, Rater, events, made, standing

SHOTS = Path(__file__).parents[1] / 'screenshots'

pytestmark = [pytest.mark.browser, pytest.mark.skipif(
    not Path(CHROMIUM).exists(), reason='needs Chromium: apt-get update && apt-get install -y chromium')]


@pytest.fixture(scope='module')
def workspace(tmp_path_factory): return tmp_path_factory.mktemp('annotate')


@pytest.fixture(scope='module')
def log(workspace):
    from paranmt_lab.annotation.store import EventLog
    return EventLog(f'sqlite:///{workspace}/annotations.sqlite')


@pytest.fixture(scope='module')
def app(workspace, log):
    "Address of a running app, and its process."
    from app_workspace import serving
    with serving(workspace) as running: yield running


@pytest.fixture(scope='module')
def browser():
    from playwright.sync_api import sync_playwright
    with sync_playwright() as p:
        chromium = p.chromium.launch(executable_path=CHROMIUM, args=[
            '--no-sandbox', '--disable-background-networking', '--force-prefers-reduced-motion'])
        yield chromium
        chromium.close()


SCREEN = {'viewport': {'width': 1440, 'height': 1000}}


@pytest.fixture(scope='module')
def room(browser):
    "A browser with the app's frontend in its cache; there is no cookie or storage by which it knows a person."
    with closing(browser.new_context(**SCREEN)) as context: yield context


@pytest.fixture(scope='module')
def seat(room):
    "A tab for the first rater of each test: its process keeps the frontend compiled."
    return room.new_page()


@pytest.fixture
def rater(browser, room, seat, app):
    "Makes people, each in a tab of their own; whoever they are, none of them asks for anything from elsewhere."
    people = []
    def sit_down(**screen):
        context = browser.new_context(**SCREEN | screen) if screen else room
        free = context is room and all(one.tab is not seat for one in people)
        people.append(Rater(context, app[0], seat if free else None))
        return people[-1]
    yield sit_down
    for one in people:
        one.close()
        if one.tab.context is not room: one.tab.context.close()


def mark(item): return 1 + item % 3, 1 + item // 3 % 3


@pytest.mark.parametrize('pairs', [16, pytest.param(50, marks=pytest.mark.soak)])
def test_pairs_by_keyboard(workspace, log, rater, capsys, pairs):
    "Marks in any order, undone across a reload and several at a time; in the end the log says what was pressed."
    name, begun = made(log, f'keyboard-{pairs}', pairs, overlap=1), 2 * pairs // 5
    ada, took, wanted = rater().open(name, 'ada'), [], {}
    def rate():
        item = ada.item()
        strength, fluency = wanted[item] = mark(item)
        keys = [str(strength), str(fluency)] if item % 2 else ['qwe'[fluency - 1], str(strength)]
        if item % 7 == 0: keys = ['2', 'Backspace', *keys]          # somebody who thinks again
        took.append(ada.next(*keys))
        return item
    for _ in range(begun): rate()
    last = ada.item() - 1
    assert standing(workspace, name)[last, 'ada'] == ('rated', *mark(last))
    ada.reload().next('u')  # what was answered before the reload is taken back after it
    assert ada.item() == last and ada.pressed() == [] and 'back' in ada.told()
    assert (last, 'ada') not in standing(workspace, name)
    assert f'{begun - 1} of {pairs}' in ada.far()
    for _ in range(3): ada.next('u')
    assert ada.item() == last - 3 and len(standing(workspace, name)) == begun - 4
    while not ada.empty(): rate()
    assert 'All done' in ada.empty() and f'{pairs} of {pairs}' in ada.far()
    assert standing(workspace, name) == {(i, 'ada'): ('rated', *mark(i)) for i in range(1, pairs + 1)}
    assert [kind for _, kind, *_ in events(workspace, name)].count('undone') == 4
    with capsys.disabled():
        print(f'\nfrom key to next pair: median {statistics.median(took):.0f} ms of {len(took)}, '
              f'slowest {max(took):.0f} ms')


@pytest.mark.parametrize('pairs', [8, pytest.param(24, marks=pytest.mark.soak)])
def test_two_people_at_once(workspace, log, rater, pairs):
    "Two browsers press at the same moments: no pair gets too many raters or one twice, and both see how it ends."
    name = made(log, f'two-{pairs}', pairs, overlap=1)
    ada, bob = rater().open(name, 'ada'), rater().open(name, 'bob')
    while not (ada.empty() or bob.empty()):
        assert ada.text() != bob.text()
        before = ada.text(), bob.text()
        for one in (ada, bob): one.keys('3')
        for one in (ada, bob): one.keys('2')                         # both are under way before either has an answer
        for one, old in zip((ada, bob), before):
            one.until("!c.classList.contains('waiting') && "
                      "c.querySelector('[data-side=reference]')?.textContent !== arg", old)
    rated = standing(workspace, name)
    assert sorted(item for item, _ in rated) == list(range(1, pairs + 1))
    assert {who for _, who in rated} == {'ada', 'bob'}
    name = made(log, f'twice-{pairs}', pairs // 2, overlap=2)
    for one, who in ((ada, 'ada'), (bob, 'bob')): one.open(name, who)
    for _ in range(pairs // 2):
        before = ada.text(), bob.text()
        for one in (ada, bob): one.keys('1', '1')
        for one, old in zip((ada, bob), before):
            one.until("!c.classList.contains('waiting') && "
                      "c.querySelector('[data-side=reference]')?.textContent !== arg", old)
    assert sorted(standing(workspace, name)) == [(i, who) for i in range(1, pairs // 2 + 1) for who in ('ada', 'bob')]
    eve = rater().open(name, 'eve')
    assert 'All done' in eve.empty()


@pytest.mark.soak
def test_one_person_on_two_machines(workspace, log, rater):
    "The second machine shows the pair of the first; both answer it, and it is rated once."
    name = made(log, 'machines', 4, overlap=2)
    first, second = rater().open(name, 'ada'), rater().open(name, 'ada')
    assert first.text() == second.text()
    first.next('3', '3')
    second.answered('1', '1')
    assert 'has your marks, 3 and 3' in second.told() and standing(workspace, name) == {(1, 'ada'): ('rated', 3, 3)}
    assert second.reload().text() == first.text()


def arrive(one, path=''):
    "Open an address and wait until the page is drawn."
    one.tab.goto(f'{one.address}/{path}')
    one.tab.wait_for_selector('h1 >> text=Annotate')
    one.tab.wait_for_function("document.querySelector('[data-testid=stApp]').dataset.testScriptState != 'running'")
    return one


def address(one):
    "What the address asks for."
    from urllib.parse import parse_qsl, urlparse
    return dict(parse_qsl(urlparse(one.tab.url).query))


def test_a_new_rater_types_a_name_and_then_rates(workspace, log, rater):
    "Keys after the name and Enter never become part of it; a new name is asked about first; then keys are ratings."
    name = made(log, 'arrival', 4, overlap=1)
    ada = arrive(rater(), f'annotate?campaign={name}')
    ada.tab.get_by_role('textbox', name='Your name').click()
    ada.tab.keyboard.type('ada')
    ada.keys('Enter', '1')                                           # at once, before the server can have answered
    ada.tab.locator('.st-key-admit button').wait_for()
    ada.keys('1', '2')                                               # there is no card yet that they could be for
    ada.tab.wait_for_timeout(500)
    assert events(workspace, name) == [] and address(ada)['annotator'] == 'ada'
    assert not ada.tab.query_selector('.card') and ada.tab.locator('.st-key-guidelines_first table').count() == 4
    assert f'ada is not in the campaign {name} yet' in ada.tab.inner_text('[data-testid=stMain]')
    ada.shot(SHOTS / 'annotate-new-rater.png')
    ada.keys('y').seated()
    assert ada.card("c.querySelector('.seat').innerText") == f'You are rating as ada in {name}'
    ada.next('1', '3')
    assert standing(workspace, name) == {(1, 'ada'): ('rated', 1, 3)}
    assert {who for who, *_ in events(workspace, name)} == {'ada'}
    ada.shot(SHOTS / 'annotate-seat.png')
    ada.reload()                                                     # known by now, so not asked again
    assert ada.item() == 2 and address(ada)['annotator'] == 'ada'
    ada.tab.get_by_role('button', name='Change name').click()
    ada.tab.get_by_role('textbox', name='Your name').click()
    ada.tab.keyboard.type('adda')
    ada.tab.get_by_role('button', name='Start', exact=True).click()
    ada.tab.locator('.st-key-admit button').wait_for()
    assert 'It knows ada.' in ada.tab.inner_text('[data-testid=stMain]')
    ada.keys('n').tab.get_by_role('textbox', name='Your name').wait_for()
    assert {who for who, *_ in events(workspace, name)} == {'ada'}


def test_a_visitor_practises_without_a_name(workspace, log, rater):
    "Three pairs with the right answer after each, back by key, and nothing of it in the log."
    name = made(log, 'visited', 3, overlap=1)
    visitor = rater().open(name)
    main = visitor.tab.locator('[data-testid=stMain]')
    assert main.get_by_role('textbox', name='Your name').is_visible() and 'waits for you' in main.inner_text()
    assert 'Could you open' in visitor.text() and visitor.far() == '0 of 3'
    visitor.next('3', '3')
    assert 'you gave 3 and 3' in visitor.told() and 'Right were strength 3 and fluency 2' in visitor.told()
    visitor.next('1', '2')
    visitor.next('u')
    assert visitor.text() == 'We leave at seven.'
    visitor.next('2', '1')
    assert 'you are right' in visitor.told()
    visitor.answered('1', '3').until("c.querySelector('.empty')")
    assert 'write your name above' in visitor.empty() and visitor.far() == '3 of 3'
    visitor.shot(SHOTS / 'annotate-practice.png')
    assert events(workspace, name) == [] and address(visitor) == dict(campaign=name)
    main.get_by_role('textbox', name='Your name').fill('eva')
    visitor.keys('Enter').tab.locator('.st-key-admit button').click()
    visitor.seated()
    assert visitor.item() == 1


@pytest.mark.soak
def test_the_address_of_a_rater_holds_the_campaign(workspace, log, rater):
    "Also the campaign that a page begins with is in the address, so a newer one takes nobody away after a reload."
    name = made(log, 'standing', 3, overlap=2)
    ada = rater().open(None, 'ada')
    assert address(ada) == dict(campaign=name, annotator='ada')
    made(log, 'newer', 3, overlap=2)
    assert name in ada.reload().card("c.querySelector('.seat').innerText")


def test_four_grades_and_trash(workspace, log, rater):
    "A campaign with the scheme of Opusparcus: one key from 1 to 4 is an answer, and t puts a pair into the trash."
    name = made(log, 'four', 4, overlap=1, scheme='opusparcus')
    ada = rater().open(name, 'ada')
    assert ada.card("[...c.querySelectorAll('.marks button')].map(b => b.textContent).join('|')"
                    ) == '1 bad1|2 mostly bad2|3 mostly good3|4 good4'
    ada.keys('q', 'd', '5')                                          # keys of the other scheme
    assert ada.item() == 1 and ada.pressed() == []
    ada.next('4')
    ada.keys('t')
    ada.next('3')                                                    # the third reason
    ada.next('1')
    ada.next('u')
    ada.next('2')
    ada.next('3')
    assert standing(workspace, name) == {(1, 'ada'): ('rated', 4, None), (2, 'ada'): ('discarded', None, None),
                                         (3, 'ada'): ('rated', 2, None), (4, 'ada'): ('rated', 3, None)}


def test_all_keys(workspace, log, rater):
    "Discard with a reason, skip, comment, source, differences, each by key and each undone by key."
    name = made(log, 'keys', 5, overlap=1)
    ada = rater().open(name, 'ada')
    assert ada.text('source') is None and not ada.card("c.querySelector('mark')")
    assert ada.keys('o', 'v').text('source') == 'Dvojice 1: celý den pršelo.'
    assert (ada.card("[...c.querySelectorAll('[data-side=translation] mark')].map(m => m.textContent).join('|')")
            == 'rained|for|the|whole')
    ada.keys('v', 'o')
    assert ada.text('source') is None and not ada.card("c.querySelector('mark')")
    ada.keys('d')
    assert ada.card("c.querySelectorAll('.marks button').length") == 4
    ada.keys('Escape', 'd')                                          # leaves, and comes back
    ada.next('2')
    assert events(workspace, name)[-2][1:3] == ('discarded', 1)
    assert events(workspace, name)[-2][3]['reason'] == 'wrong language'
    ada.next('s')
    assert standing(workspace, name)[2, 'ada'][0] == 'skipped'
    ada.keys('c')
    ada.tab.keyboard.type('q 1 2 u? "; <b>')                         # keys of a comment are text
    ada.answered('Enter')
    assert events(workspace, name)[-1][1:] == ('commented', 3, {'text': 'q 1 2 u? "; <b>'}) and ada.item() == 3
    ada.keys('c', 'x', 'Escape')
    assert not ada.card("c.querySelector('textarea')") and len(events(workspace, name)) == 6
    ada.next('u')
    assert ada.item() == 2 and 'back' in ada.told()
    ada.next('u')
    assert ada.item() == 1 and standing(workspace, name) == {}
    ada.answered('u')
    assert 'nothing to undo' in ada.told()
    ada.next('3', '1')
    assert standing(workspace, name) == {(1, 'ada'): ('rated', 3, 1)}


def test_going_back_to_an_answer(workspace, log, rater):
    "By number and from the list: what was answered is shown, a change is a new event, undo brings the old one back."
    name = made(log, 'back', 5, overlap=1)
    ada = rater().open(name, 'ada')
    for keys in ('33', '22', '11'): ada.next(*keys)
    ada.keys('b').tab.keyboard.type('1')                             # the field holds 3, the last one: 31 is too many
    ada.answered('Enter')
    assert 'no answer 31' in ada.told() and ada.item() == 4
    ada.keys('b').next('Enter')
    former = ada.card("c.querySelector('.former').innerText")
    assert ada.item() == 3 and 'Your answer 3: strength 1, fluency 1' in former
    ada.shot(SHOTS / 'annotate-back.png')
    ada.answered('u', 's')                                           # neither undoes nor skips anything here
    assert ada.item() == 3
    ada.next('3', '2')
    assert ada.item() == 4 and 'Changed to 3 and 2' in ada.told()
    assert events(workspace, name)[-1][1:3] == ('revised', 3) and standing(workspace, name)[3, 'ada'] == ('rated', 3, 2)
    for _ in range(2): ada.next('b', 'Enter')                        # the last one, and the one before it
    assert ada.item() == 2
    ada.next('d', '3')
    assert standing(workspace, name)[2, 'ada'][0] == 'discarded' and ada.item() == 4
    ada.answered('u')
    assert 'the marks are 2 and 2 again' in ada.told() and standing(workspace, name)[2, 'ada'] == ('rated', 2, 2)
    ada.next('b', 'Enter')
    ada.next('Escape')
    assert ada.item() == 4
    ada.tab.get_by_text('My answers').last.click()
    ada.tab.get_by_label('Search my answers').fill('PAIR 1 ')
    ada.keys('Enter').tab.get_by_text('1 of 3 answers').wait_for()
    assert address(ada) == dict(campaign=name, annotator='ada', answers='1', find='PAIR 1 ')
    ada.shot(SHOTS / 'annotate-answers.png')
    ada.tab.locator('.st-key-own_answers [data-testid=stDataFrame]').click(position=dict(x=15, y=52))
    ada.until("c.querySelector('.former')")
    assert ada.item() == 1 and len(events(workspace, name)) == 10


def test_a_pause_reaches_a_rater_who_is_at_work(workspace, log, rater):
    "An answer that comes after the pause is refused in words; the researcher's button lets the rater go on."
    from paranmt_lab.annotation.queue import set_state
    name = made(log, 'pause', 4, overlap=1)
    ada = rater().open(name, 'ada')
    ada.next('3', '3')
    set_state(log, name, 'paused', 'eve', 'Back on <b>Monday</b>.')
    ada.answered('2', '2')
    assert 'paused' in ada.told() and 'Back on <b>Monday</b>.' in ada.empty()
    assert standing(workspace, name) == {(1, 'ada'): ('rated', 3, 3)}
    ada.reload().tab.get_by_text(f'Manage {name}').click()
    ada.shot(SHOTS / 'annotate-manage.png')
    assert f'/annotate?campaign={name}' in ada.tab.inner_text('.st-key-managing [data-testid=stCode] >> nth=-1')
    ada.tab.wait_for_selector('[data-test-script-state=notRunning]')
    ada.tab.locator('.st-key-state_open button').click()
    ada.until("c.querySelector('[data-side=reference]')").next('2', '2')
    assert standing(workspace, name)[2, 'ada'] == ('rated', 2, 2)


def test_guidelines(workspace, log, rater):
    "The key ? opens them, and while they lie over the card its keys do nothing."
    name = made(log, 'guided', 3, overlap=1)
    ada = rater().open(name, 'ada')
    ada.keys('?').tab.wait_for_selector('[role=dialog] table')
    ada.keys('1', '1', 's', 'u', '?').tab.wait_for_timeout(500)
    assert standing(workspace, name) == {} and ada.pressed() == []
    ada.shot(SHOTS / 'annotate-guidelines.png')
    ada.keys('Escape').tab.wait_for_selector('[role=dialog]', state='detached')
    ada.next('1', '3')
    assert standing(workspace, name) == {(1, 'ada'): ('rated', 1, 3)}
    ada.keys('?').tab.wait_for_selector('[role=dialog] table')        # again, after an answer


def test_haste(workspace, log, rater):
    "The last key twice is one rating, and a key that falls before the next pair is there rates nothing."
    name = made(log, 'haste', 4, overlap=1)
    ada = rater().open(name, 'ada')
    before = ada.text()
    ada.at_once('2', '3', '3', '1', 'q', 's', 'u', 'd').until(
        "!c.classList.contains('waiting') && c.querySelector('[data-side=reference]')?.textContent !== arg", before)
    assert ada.item() == 2 and ada.pressed() == [] and ada.card("c.querySelectorAll('.scale').length") == 2
    ada.tab.wait_for_timeout(300)
    assert ([(kind, item) for _, kind, item, _ in events(workspace, name)]
            == [('assigned', 1), ('rated', 1), ('assigned', 2)])
    ada.tab.evaluate("['2', '2'].forEach(key => document.dispatchEvent(new KeyboardEvent('keydown', {key, repeat: "
                     "true, bubbles: true, cancelable: true})))")
    assert ada.pressed() == []                                       # a key that is held down


def test_gold(workspace, log, rater):
    "On an item to learn on the right answer is told afterwards, and not before."
    from paranmt_lab.annotation.campaigns import Gold
    name = made(log, 'gold', 2, overlap=1, gold=(
        Gold('The bank is closed.', 'They sat on the river bank.', 1, 3, 'One word in common, <b>two</b> topics.'),))
    ada = rater().open(name, 'ada')
    assert ada.text() == 'The bank is closed.'
    assert ada.card("c.querySelector('.training').innerText").startswith('Training')
    assert 'two' not in ada.tab.content() or 'topics' not in ada.tab.content()
    ada.next('3', '3')
    assert 'Right were strength 1 and fluency 3. One word in common, <b>two</b> topics.' in ada.told()
    assert ada.item() == 1 and not ada.card("c.querySelector('.training')")
    ada.next('2', '2')
    assert 'Right were' not in ada.told()


HOSTILE = ['<script>window.hacked = 1</script><img src=x onerror="window.hacked = 1">',
           '[click](javascript:window.hacked=1) ![see](http://198.51.100.7/pixel.png) '
           '<iframe src="http://198.51.100.7/"></iframe>',
           'right to left: שלום עולם مرحبا, and turned \u202etxt.exe\u202c back',
           '🐎🧵👩‍👩‍👧‍👦 ' + 'emoji ' * 3, 'x' * 5000 + ' very long ' * 500,
           '$E = mc^2$ :material/delete: **bold** `code` {{ 7 * 7 }}', "Robert'); DROP TABLE events;--",
           'a NUL \x00, a bell \x07, a tab\tand\na line end']


def test_hostile_text_is_inert(workspace, log, rater):
    "Texts, comments and names are shown letter for letter, invisible characters by number, and not obeyed."
    assert max(map(len, HOSTILE)) >= 10_000
    name = made(log, 'hostile', texts=list(zip(HOSTILE, HOSTILE[::-1], HOSTILE)), overlap=1)
    ada = rater().open(name, HOSTILE[0])
    for text, other in zip(HOSTILE, HOSTILE[::-1]):
        # NUL cannot be stored by every engine; its picture can
        text, other = (t.replace('\0', '\N{SYMBOL FOR NULL}') for t in (text, other))
        ada.keys('o', 'v')
        seen = [visible(t, '\t\n') for t in (text, other, text)]
        assert [ada.text(), ada.text('translation'), ada.text('source')] == seen
        assert not set('\u202e\u202c\x07') & set(ada.card('c.innerText'))
        if len(text) > 9000: ada.shot(SHOTS / 'annotate-long.png')
        if 'שלום' in text: ada.shot(SHOTS / 'annotate-right-to-left.png')
        assert (ada.card(
            "[...c.querySelectorAll('script, img, iframe, a, b')].filter(e => !e.closest('button')).length") == 0)
        assert ada.tab.evaluate('document.documentElement.scrollWidth <= innerWidth')
        assert ada.card('c.scrollWidth <= c.clientWidth')
        ada.keys('v', 'c')
        ada.tab.keyboard.insert_text(text[:2000])
        ada.answered('Enter')
        ada.next('2', '2')
    assert ada.tab.evaluate('window.hacked') is None
    assert len(standing(workspace, name)) == len(HOSTILE)
    assert {who for _, who in standing(workspace, name)} == {HOSTILE[0]}
    said = [p['text'] for _, kind, _, p in events(workspace, name) if kind == 'commented']
    flat = lambda t: re.sub(r'\s', ' ', t)                           # a field has no tabs and bells
    assert [flat(a)[:200] for a in said[:-1]] == [flat(t)[:200] for t in HOSTILE[:-1]]
    assert not ada.tab.query_selector('[data-testid=stMain] iframe, [data-testid=stSidebar] img, '
                                      '[data-testid=stMain] img, [data-testid=stMain] script')


SEEN = """sides => { // the lowest contrast of texts of the card with what lies behind them
  const paint = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const over = (under, colour) => {
    paint.clearRect(0, 0, 1, 1);
    for (const c of [...under, colour]) { paint.fillStyle = c; paint.fillRect(0, 0, 1, 1); }
    return [...paint.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const linear = v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
  const light = rgb => rgb.map(v => linear(v / 255)).reduce((s, v, i) => s + v * [.2126, .7152, .0722][i], 0);
  const parent = e => e.parentElement ?? e.getRootNode().host;
  const card = CARD, found = {};
  for (const e of card.querySelectorAll('.label, .side p, button, kbd, .how-far, .told')) {
    const under = [];
    for (let up = e; up; up = parent(up)) under.unshift(getComputedStyle(up).backgroundColor);
    const [a, b] = [light(over(under, getComputedStyle(e).color)), light(over(under.slice(0, -1), under.at(-1)))];
    const name = e.className || e.tagName, contrast = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    found[name] = Math.min(found[name] ?? 99, contrast);
  }
  return found;
}"""


@pytest.mark.parametrize('scheme', ['light', pytest.param('dark', marks=pytest.mark.soak)])
def test_looks(log, rater, scheme):
    "At a zoom of 125 % on a laptop's screen all of the card is in sight and legible, in a light and a dark room."
    from raters import CARD
    name = made(log, f'looks-{scheme}', 3, overlap=2)
    # what 1440 x 1000 points are at 125 %
    ada = rater(viewport={'width': 1152, 'height': 800}, device_scale_factor=1.25,
                color_scheme=scheme).open(name, 'ada')
    ada.keys('v')
    ada.next('3', '2')
    ada.tab.wait_for_timeout(1500)
    lowest = ada.tab.evaluate(SEEN.replace('CARD', CARD), None)
    assert min(lowest.values()) >= 4.5, lowest
    ground = ada.tab.evaluate("getComputedStyle(document.querySelector('[data-testid=stApp]')).backgroundColor")
    assert (sum(map(int, re.findall(r'\d+', ground)[:3])) < 150) == (scheme == 'dark')
    assert ada.card("Math.max(...[...c.querySelectorAll('.side, "
                    ".scale, .foot')].map(e => e.getBoundingClientRect().bottom)) <= innerHeight")
    assert ada.tab.evaluate('document.documentElement.scrollWidth <= innerWidth')
    assert ada.card("parseFloat(getComputedStyle(c.querySelector('.side p')).fontSize)") >= 20
    ada.shot(SHOTS / f'annotate-125-{scheme}.png')
    ada.keys('3', 'o').shot(SHOTS / f'annotate-source-{scheme}.png')
    ada.keys('d').shot(SHOTS / f'annotate-discard-{scheme}.png')


def test_full_disk(workspace, log, rater, app):
    "No room: the card says that nothing was saved and what to do; with room again the same press saves it."
    name = made(log, 'full', 4, overlap=1)
    ada = rater().open(name, 'ada')
    ada.next('3', '3')
    before = resource.prlimit(app[1].pid, resource.RLIMIT_FSIZE)
    try:
        # the server can make no file longer than this
        resource.prlimit(app[1].pid, resource.RLIMIT_FSIZE, (1024, before[1]))
        ada.answered('2', '1')
        assert 'Not saved' in ada.told() and 'make room' in ada.told() and ada.item() == 2
        ada.shot(SHOTS / 'annotate-full-disk.png')
        assert standing(workspace, name) == {(1, 'ada'): ('rated', 3, 3)}
    finally: resource.prlimit(app[1].pid, resource.RLIMIT_FSIZE, before)
    ada.next('2', '1')
    assert ada.item() == 3 and standing(workspace, name) == {(1, 'ada'): ('rated', 3, 3), (2, 'ada'): ('rated', 2, 1)}


def test_database_gone(workspace, log, rater):
    "The file is moved away while somebody rates: they are told, nothing is saved; when it is back, work goes on."
    name = made(log, 'gone', 4, overlap=1)
    ada, file = rater().open(name, 'ada'), workspace / 'annotations.sqlite'
    ada.next('3', '3')
    away = {p: p.with_name(f'away-{p.name}') for p in workspace.glob('annotations.sqlite*')}
    try:
        for p, to in away.items(): p.rename(to)
        ada.keys('2', '1')
        ada.tab.wait_for_selector('[data-testid=stAlert] >> text=Your last answer was not saved')
        ada.shot(SHOTS / 'annotate-gone.png')
        assert not file.exists()                                     # and no empty one was put in its place
    finally:
        for p, to in away.items(): to.rename(p)
    ada.tab.get_by_role('button', name='Try again').click()
    ada.seated()
    assert ada.item() == 2 and ada.pressed() == [] and standing(workspace, name) == {(1, 'ada'): ('rated', 3, 3)}
    ada.next('1', '2')
    assert standing(workspace, name)[2, 'ada'] == ('rated', 1, 2)


@pytest.mark.soak
def test_slow_server(workspace, log, rater, app):
    "No answer for seconds: the rater is told, another press changes nothing, and it is one rating."
    name = made(log, 'slow', 3, overlap=1)
    ada = rater().open(name, 'ada')
    os.kill(app[1].pid, signal.SIGSTOP)
    try:
        ada.keys('3', '2').until("c.querySelector('.told').innerText.includes('No answer')")
        assert 'sent again until it is saved' in ada.told()
        before = ada.text()
        ada.keys('2')
    finally: os.kill(app[1].pid, signal.SIGCONT)
    ada.until("!c.classList.contains('waiting') && c.querySelector('[data-side=reference]')?.textContent !== arg",
              before)
    ada.tab.wait_for_timeout(500)
    assert standing(workspace, name) == {(1, 'ada'): ('rated', 3, 2)}
    assert [k for _, k, *_ in events(workspace, name)].count('rated') == 1
    assert ada.item() == 2


@pytest.fixture(scope='module')
def connection(app):
    "A connection to the app that a test can cut, stall and delay."
    with closing(Connection(int(app[0].rpartition(':')[2]))) as connection: yield connection


@pytest.fixture
def remote(room, connection):
    "A rater whose browser reaches the app through that connection."
    connection.mend()
    with closing(Rater(room, connection.address)) as rater: yield rater
    connection.mend()


TROUBLES = {
    'cut': lambda c: c.cut(1.5),        # every connection is closed, and new ones are refused
    'stalled': lambda c: c.stall(5.),   # nothing goes through, and nothing is lost
    'delayed': lambda c: c.delay(1.7),  # everything comes late, so each message is sent twice
    'lost': lambda c: c.lose(2.),       # nothing of the browser's arrives, and what was sent is gone
}
ANSWERS = {
    'marks': (['3', '1'], ('rated', 3, 1)), 'reversed': (['1', '3'], ('rated', 1, 3)),
    'discard': (['d', '2'], ('discarded', None, None))}


# The others take two minutes more, with `-m soak`.
OFTEN = [('cut', 'marks')]
EVERY = [pytest.param(t, a, marks=() if (t, a) in OFTEN else pytest.mark.soak) for t in TROUBLES for a in ANSWERS]


@pytest.mark.parametrize('trouble, answer', EVERY)
def test_a_broken_connection_saves_what_was_pressed(trouble, answer, workspace, log, remote, connection):
    "The same keys pressed again and again over a broken connection are one answer, and the next pair is untouched."
    keys, outcome = ANSWERS[answer]
    name = made(log, f'{trouble}-{answer}', 3, overlap=1)
    before = remote.open(name, 'ada').text()
    TROUBLES[trouble](connection)
    remote.keys(*keys)
    for _ in range(8):
        remote.tab.wait_for_timeout(250)
        if remote.text() == before: remote.keys(*keys)
    remote.until("!c.classList.contains('waiting') && c.querySelector('[data-side=reference]')?.textContent !== arg",
                 before)
    connection.mend()
    remote.tab.wait_for_timeout(1200)  # what is late arrives
    assert standing(workspace, name) == {(1, 'ada'): outcome}
    assert remote.item() == 2 and remote.pressed() == []
    remote.next('2', '2')
    assert standing(workspace, name) == {(1, 'ada'): outcome, (2, 'ada'): ('rated', 2, 2)}
    kinds = [kind for _, kind, *_ in events(workspace, name)]
    assert sorted(kinds) == sorted(['assigned', outcome[0], 'assigned', 'rated', 'assigned'])


@pytest.mark.soak
@pytest.mark.parametrize('trouble', TROUBLES)
def test_a_comment_outlives_a_broken_connection(trouble, workspace, log, remote, connection):
    name = made(log, f'{trouble}-comment', 2, overlap=1)
    remote.open(name, 'ada').keys('c')
    remote.tab.keyboard.type('The tense differs')
    TROUBLES[trouble](connection)
    remote.answered('Enter')
    connection.mend()
    assert [payload['text'] for _, kind, _, payload in events(workspace, name) if kind == 'commented'] == [
        'The tense differs']
    remote.next('3', '2')
    assert standing(workspace, name)[1, 'ada'] == ('rated', 3, 2)


@pytest.mark.soak
def test_a_locked_database_is_waited_for(workspace, log, rater):
    "Another program holds the database for a while: the rating waits for it and is saved."
    name = made(log, 'locked', 3, overlap=1)
    ada = rater().open(name, 'ada')
    with closing(sqlite3.connect(workspace / 'annotations.sqlite', isolation_level=None)) as other:
        other.execute('BEGIN IMMEDIATE')
        ada.keys('1', '2').tab.wait_for_timeout(1500)
        assert standing(workspace, name) == {}
        other.execute('ROLLBACK')
    ada.until("c.querySelector('[data-side=reference]')?.textContent.startsWith('Pair 2 ')")
    assert standing(workspace, name) == {(1, 'ada'): ('rated', 1, 2)} and 'locked' not in ada.told()


@pytest.fixture(scope='module')
def judged(workspace, log):
    "A campaign of a corpus of which two people have rated everything, and differ on every fourth pair."
    from dataclasses import replace

    import numpy as np

    from paranmt_lab.annotation.answers import submit
    from paranmt_lab.annotation.campaigns import Campaign, create_campaign
    from paranmt_lab.annotation.queue import next_item
    from paranmt_lab.corpora.query import Corpus
    from paranmt_lab.ground.settings import settings
    s = replace(settings(), workspace=workspace)
    corpus, score = Corpus.create('toy', s), np.linspace(-.09, .99, 500).astype(np.float32)
    corpus.write_pairs(
        0, {'reference': [HOSTILE[0] if i % 9 == 0 else f'Pair {i}: it has been raining.' for i in range(500)],
            'translation': [f'Pair {i}: it rained.' for i in range(500)]})
    corpus.write_measure('paraphrase_score@toy', 0, score)
    create_campaign(log, Campaign('judged', 'toy', measure='paraphrase_score@toy', n=8, overlap=2), s, 'ada')
    for who in ('ada', 'bob'):
        for k in range(40):
            item = next_item(log, 'judged', who).item
            submit(log, 'judged', who, item,
                   1 + item % 3 if who == 'ada' or item % 4 else 1 + (item + 1) % 3, 3, f'{who}{k}')
    return 'judged'


GROUND = """scheme => {  // whether the ground of the page is that of a light or a dark room
  const parts = getComputedStyle(document.querySelector('[data-testid=stApp]')).backgroundColor.match(/\\d+/g);
  return (parts.slice(0, 3).reduce((sum, part) => sum + +part, 0) < 150) == (scheme == 'dark');
}"""


def drawn(rater):
    "Wait until the script of the page has run; it shows no exception."
    rater.tab.wait_for_function("document.querySelector('[data-testid=stApp]').dataset.testScriptState != 'running'")
    assert not rater.tab.query_selector('[data-testid=stException]')
    return rater


def visit(rater, view, **address):
    "A view of the page of agreement, drawn to its end."
    from urllib.parse import urlencode
    rater.tab.goto(f'{rater.address}/agreement?{urlencode(dict(campaign="judged", view=view) | address)}')
    rater.tab.wait_for_selector('text=Download the answers')
    return drawn(rater)


@pytest.mark.parametrize('views', [('in dispute',), pytest.param(('raters', 'table 3'), marks=pytest.mark.soak)],
                         ids=', '.join)
def test_agreement_views(judged, log, rater, workspace, views):
    "Every view is drawn, in a light and a dark room, and hostile text of a pair is inert."
    one = rater(color_scheme='light', viewport={'width': 1440, 'height': 1300})
    for view in ('agreement', *views):
        visit(one, view)
        for scheme in ('light', 'dark'):
            one.tab.emulate_media(color_scheme=scheme)
            one.tab.wait_for_function(GROUND, arg=scheme)
            drawn(one).shot(SHOTS / f'agreement-{view.replace(" ", "-")}-{scheme}.png')
        one.tab.emulate_media(color_scheme='light')
        assert one.tab.evaluate('window.hacked') is None
        assert not one.tab.query_selector('[data-testid=stMain] iframe, [data-testid=stMain] script')
    with one.tab.expect_download() as file: one.tab.click('.st-key-export_CSV button')
    saved = pd.read_csv(file.value.path())
    assert ({(r.item, r.annotator): ('rated', r.strength, r.fluency) for r in saved.itertuples()}
            == standing(workspace, judged))


SLOWLY = """
import time
from pathlib import Path
from paranmt_lab.pages import agreement, agreement_people as view
go = Path(__file__).with_name('go')
if not hasattr(view, 'at_once'):
    view.at_once = view.agreement_table
    def slowly(*of, resamples=1000):
        while resamples and not go.exists(): time.sleep(.05)
        return view.at_once(*of, resamples=resamples)
    view.agreement_table = slowly
agreement.page()
"""


@pytest.mark.soak
def test_intervals_come_by_themselves(browser, tmp_path):
    "Intervals that take long follow the page without a click, are kept, and give way to new ones after a rating."
    from app_workspace import serving
    from paranmt_lab.annotation.answers import submit
    from paranmt_lab.annotation.queue import next_item
    from paranmt_lab.annotation.store import EventLog
    log = EventLog(f'sqlite:///{tmp_path}/annotations.sqlite')
    made(log, 'slow', 40, overlap=3)
    def rate(who, k, mark): submit(log, 'slow', who, next_item(log, 'slow', who).item, mark, 3, f'{k}')
    for who in ('ada', 'bob'):
        for k in range(40): rate(who, k, 1 + (k + (who == 'bob') * (k > 35)) % 3)
    (tmp_path / 'slowly.py').write_text(SLOWLY)
    with serving(tmp_path, script=tmp_path / 'slowly.py') as (address, _):
        one = Rater(browser.new_context(viewport={'width': 1440, 'height': 1300}), address)
        # percent, alpha ordinal, AC2 of the first stratum
        row = "[...document.querySelectorAll('[data-testid=stDataFrame] td')].slice(2, 5).map(e => e.textContent)"
        one.tab.add_init_script(f"window.drawn = []; setInterval(() => {{ const now = {row}.join(' | '); "
                                f"if (now && now !== drawn.at(-1)) drawn.push(now); }}, 20)")
        def intervals():
            return one.tab.wait_for_function(
                "drawn.at(-1)?.split(' | ').every(cell => cell.includes('[')) && drawn.at(-1)").json_value()
        one.tab.goto(f'{address}/?campaign=slow')
        one.tab.wait_for_function('drawn.length')
        (tmp_path / 'go').touch()
        first = intervals()
        assert '[' not in one.tab.evaluate('drawn')[0]
        one.tab.reload()
        assert intervals() == first and one.tab.evaluate('drawn') == [first]                       # kept
        rate('cleo', 0, 3)
        (tmp_path / 'go').unlink()
        one.tab.reload()
        one.tab.wait_for_function('drawn.length')
        (tmp_path / 'go').touch()
        assert intervals() != first and first not in one.tab.evaluate('drawn')
        assert '[' not in one.tab.evaluate('drawn')[0]
        one.close()


def test_deciding_blind(judged, workspace, rater):
    "A third person decides pairs in dispute by keys, without seeing a mark; who has rated them gets none."
    ada = visit(rater(), 'decide', annotator='ada')
    ada.until("c.querySelector('.empty')")
    dana = visit(rater(), 'decide', annotator='dana')
    dana.until("c.querySelector('[data-side=reference]')")
    assert '0 of 10' in dana.far() and not any(name in dana.card('c.innerText') for name in ('ada', 'bob'))
    before = standing(workspace, judged)
    dana.next('2', '3')
    who, kind, item, payload = events(workspace, judged)[-1]
    assert ((who, kind, item, payload['strength'], payload['fluency'], payload['how'])
            == ('dana', 'adjudicated', 4, 2, 3, 'blind'))
    dana.answered('u').tab.wait_for_timeout(500)                      # a decision is not undone, and no rating either
    assert standing(workspace, judged) == before
    dana.shot(SHOTS / 'agreement-decide.png')


@pytest.mark.soak
def test_fifty_more(judged, log, rater):
    "One click makes a campaign of fifty pairs that nobody has been asked about."
    from paranmt_lab.annotation.campaigns import campaign_items, list_campaigns
    dana = visit(rater(viewport={'width': 1440, 'height': 1300}), 'next pairs', annotator='dana')
    dana.tab.get_by_role('button', name='Add 50 pairs').click()
    dana.tab.wait_for_selector('text=judged+2')
    dana.shot(SHOTS / 'agreement-next-pairs.png')
    made = campaign_items(log, 'judged+2')
    assert len(made) == 50 and not set(made.pair_id) & set(campaign_items(log, judged).pair_id)
    assert list_campaigns(log).set_index('campaign').by['judged+2'] == 'dana'


@pytest.fixture(scope='module')
def provider():
    "A small OpenID Connect provider, which signs in whom `provider.claims` names; the app checks its signatures."
    pytest.importorskip('authlib', reason="a login needs Authlib: pip install 'paranmt-lab[app]'")
    import json
    import threading
    import time
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
    from urllib.parse import parse_qs, urlencode, urlparse

    from joserfc import jwk, jwt
    key, asked = jwk.RSAKey.generate_key(2048, {'kid': 'k'}), {}

    class Provider(BaseHTTPRequestHandler):
        claims = {}
        def log_message(self, *args): pass
        def say(self, what):
            self.send_response(200)
            self.send_header('Content-Type', 'application/json')
            self.end_headers()
            self.wfile.write(json.dumps(what).encode())
        def do_GET(self):
            at, said = urlparse(self.path), {k: v[0] for k, v in parse_qs(urlparse(self.path).query).items()}
            here = f'http://127.0.0.1:{self.server.server_port}'
            if at.path == '/authorize':
                code = str(len(asked))
                asked[code] = dict(self.claims, nonce=said.get('nonce'))
                self.send_response(302)
                self.send_header('Location',
                                 f"{said['redirect_uri']}?{urlencode(dict(code=code, state=said['state']))}")
                self.end_headers()
            elif at.path == '/keys': self.say({'keys': [key.as_dict(private=False)]})
            else:
                self.say(dict(issuer=here, authorization_endpoint=f'{here}/authorize', token_endpoint=f'{here}/token',
                              jwks_uri=f'{here}/keys', response_types_supported=['code'],
                              subject_types_supported=['public'], id_token_signing_alg_values_supported=['RS256'],
                              code_challenge_methods_supported=['S256']))
        def do_POST(self):
            said = parse_qs(self.rfile.read(int(self.headers['Content-Length'])).decode())
            now = int(time.time())
            claims = dict(iss=f'http://127.0.0.1:{self.server.server_port}',
                          aud='workbench', iat=now, exp=now + 600, **asked.pop(said['code'][0]))
            self.say(dict(access_token='x', token_type='Bearer', expires_in=600,
                          id_token=jwt.encode({'alg': 'RS256', 'kid': 'k'}, claims, key)))

    server = ThreadingHTTPServer(('127.0.0.1', 0), Provider)
    Provider.address = f'http://127.0.0.1:{server.server_port}'
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield Provider
    server.shutdown()


@pytest.fixture(scope='module')
def guarded(provider, tmp_path_factory):
    "Address of an app with a login, its workspace and its log. One researcher is on the list."
    from app_workspace import free_port, serving
    from paranmt_lab.annotation.store import EventLog
    workspace, port = tmp_path_factory.mktemp('guarded'), free_port()
    secrets = workspace / 'secrets.toml'
    secrets.write_text(f'[auth]\nredirect_uri = "http://127.0.0.1:{port}/oauth2callback"\n'
                       f'cookie_secret = "{"only for this test " * 2}"\nclient_id = "workbench"\nclient_secret = "a"\n'
                       f'server_metadata_url = "{provider.address}/.well-known/openid-configuration"\n')
    log = EventLog(f'sqlite:///{workspace}/annotations.sqlite')
    made(log, 'team', 6, overlap=2)
    with serving(workspace, '--secrets.files', str(secrets), port=port,
                 PARANMT_RESEARCHERS='ada@example.org') as (address, _):
        yield address, workspace, log


@pytest.fixture
def signed_in(browser, guarded, provider):
    "Makes people who have signed in with these claims."
    people = []
    def sign_in(path='annotate', **claims):
        one = Rater(browser.new_context(viewport={'width': 1440, 'height': 1000}), guarded[0])
        people.append(one)
        one.tab.goto(f'{guarded[0]}/{path}')
        button = one.tab.get_by_role('button', name='Sign in')
        button.wait_for()
        assert one.tab.query_selector('.card') is None and 'Pair' not in one.tab.inner_text('body')
        if claims:
            provider.claims = claims
            button.click()
            # Signed in and back at the first address: no redirect is under way.
            one.tab.wait_for_function("path => location.pathname == path && document.querySelector('.st-key-sign_out')",
                                      arg='/' + path.partition('?')[0])
        return one
    yield sign_in
    for one in people:
        one.abroad = [url for url in one.abroad if not url.startswith(provider.address)]
        one.close()
        one.tab.context.close()


PAGES = ('overview', 'pairs', 'agreement')


@pytest.mark.soak
def test_an_invitation_survives_the_sign_in(signed_in, guarded):
    "The link of an older campaign leads to its own pairs after signing in, and gives out nothing of another campaign."
    _, workspace, log = guarded
    made(log, 'invited', 3, overlap=2)
    made(log, 'newest', 3, overlap=2)
    eve = signed_in('annotate?campaign=invited', sub='5', email='eve@example.org', email_verified=True)
    eve.begin()
    assert eve.card("c.querySelector('.seat').innerText") == 'You are rating as eve@example.org in invited'
    assert address(eve)['campaign'] == 'invited' and events(workspace, 'newest') == []
    fay = signed_in('annotate', sub='6', email='fay@example.org', email_verified=True)
    fay.begin()
    assert 'newest' in fay.card("c.querySelector('.seat').innerText")


def test_an_annotator_rates_and_nothing_else(signed_in, guarded):
    "Under a login an annotator reaches no other page by its address, and no campaign is made by them."
    bob = signed_in(sub='2', email='bob@example.org', email_verified=True)
    bob.open('team')
    assert 'bob@example.org' in bob.tab.inner_text('[data-testid=stSidebar]')
    for path in PAGES:
        bob.tab.goto(f'{guarded[0]}/{path}')
        bob.tab.wait_for_selector('[role=dialog] >> text=Page not found')
        assert bob.tab.inner_text('h1') == 'Annotate'
        assert 'New campaign' not in bob.tab.inner_text('[data-testid=stMain]')
        assert ({a.get_attribute('href').rsplit('/', 1)[-1]
                 for a in bob.tab.query_selector_all('[data-testid=stSidebarNavLink]')} <= {'annotate', ''})


def test_nobody_is_somebody_else(signed_in, guarded):
    "The provider names the rater: no address or cookie changes it, and others' ratings are neither read nor touched."
    _, workspace, log = guarded
    ada = signed_in(sub='1', email='Ada@example.org', email_verified=True)
    bob = signed_in(sub='2', email='bob@example.org', email_verified=True)
    ada.open('team').next('3', '1')
    ada.keys('c').tab.keyboard.type('only for researchers')
    ada.answered('Enter')
    others = {k: v for k, v in standing(workspace, 'team').items() if k[1] == 'Ada@example.org'}
    assert len(others) == 1
    bob.open('team', 'Ada@example.org', desk='Ada@example.org', user='Ada@example.org')
    assert 'bob@example.org' in bob.tab.inner_text('[data-testid=stSidebar]')
    assert not bob.tab.query_selector('.st-key-typed_name')
    bob.answered('u')                                                 # nothing of hers is undone
    assert 'nothing to undo' in bob.told()
    bob.next('1', '2')
    bob.next('1', '2')
    now = standing(workspace, 'team')
    assert {k: v for k, v in now.items() if k[1] == 'Ada@example.org'} == others
    assert {who for _, who in now} == {'Ada@example.org', 'bob@example.org'}
    assert sum(who == 'bob@example.org' for _, who in now) == 2
    assert 'only for researchers' not in bob.tab.content()
    cookie = next(c for c in bob.tab.context.cookies() if c['name'] == '_streamlit_user')
    hers = next(c for c in ada.tab.context.cookies() if c['name'] == '_streamlit_user')
    body, theirs = cookie['value'].rsplit('.', 1), hers['value'].rsplit('.', 1)
    bob.tab.context.add_cookies([cookie | dict(value=f'{theirs[0]}.{body[1]}')]) # her claims under his signature
    bob.tab.goto(f'{guarded[0]}/annotate?campaign=team')
    bob.tab.get_by_role('button', name='Sign in').wait_for()
    assert bob.tab.query_selector('.card') is None


def test_a_researcher_reaches_every_page(signed_in, guarded):
    "An address on the list reaches all pages; unverified, it reaches none of them and rates under another name."
    ada = signed_in(sub='1', email='Ada@example.org', email_verified=True)
    ada.open('team')
    links = {a.get_attribute('href').rsplit('/', 1)[-1]
             for a in ada.tab.query_selector_all('[data-testid=stSidebarNavLink]')}
    assert {'annotate', 'training', 'results'} <= links
    assert 'New campaign' in ada.tab.inner_text('[data-testid=stMain]')
    for path in PAGES[:1]:                                            # and leaves from it
        ada.tab.goto(f'{guarded[0]}/{path}')
        ada.tab.locator('[data-testid=stSidebar]').get_by_role('button', name='Sign out').wait_for()
    liar = signed_in(sub='9', email='Ada@example.org', email_verified=False)
    liar.open('team')
    assert 'Ada@example.org' not in liar.tab.inner_text('[data-testid=stSidebar]')
    assert 'New campaign' not in liar.tab.inner_text('[data-testid=stMain]')
    liar.next('2', '2')
    assert any(who.endswith(' 9') for _, who in standing(guarded[1], 'team'))


def test_who_has_not_signed_in_sees_nothing(signed_in):
    "Without a login there is a button and no pair."
    for path in ('', 'overview'): signed_in(path)
