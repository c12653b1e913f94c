"""People at the page "Annotate" in a real browser, for the tests and for tests/benchmarks/annotation_page.py."""
import json
import os
import re
import socket
import sqlite3
import threading
import time
from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import urlencode

import pandas as pd

from paranmt_lab.annotation.campaigns import Campaign, keep_campaign

CHROMIUM = '/usr/bin/chromium'
PATIENCE = 60_000 # Milliseconds: the first page imports torch, and the machine may be busy
CARD = "[...document.querySelectorAll('*')].map(e => e.shadowRoot?.querySelector('.card')).find(x => x)"
SIDES = ('reference', 'translation', 'source')


def made(log, name, n=0, texts=None, **plan):
    "A campaign of so many pairs, each with its number in the text, or of given texts."
    texts = (texts or [(f'Pair {i} of {name}: it has been raining all day.',
                        f'Pair {i} of {name}: it rained for the whole day.', f'Dvojice {i}: celý den pršelo.')
                       for i in range(1, n + 1)])
    items = pd.DataFrame([dict(zip(SIDES, t)) for t in texts]).assign(
        pair_id=range(len(texts)), stratum='all', weight=1.)
    keep_campaign(log, Campaign(name, **plan), items,
                  pd.DataFrame(dict(stratum=['all'], pairs=[len(items)], drawn=[len(items)], weight=[1.])), 'ada')
    return name


def events(workspace, campaign):
    "The log of a campaign, read without the package."
    with closing(sqlite3.connect(f'file:{Path(workspace) / "annotations.sqlite"}?mode=ro', uri=True)) as db:
        rows = db.execute("SELECT annotator, kind, item, payload FROM events WHERE campaign = ? "
                          "AND item IS NOT NULL ORDER BY id", [campaign]).fetchall()
    return [(who, kind, item, json.loads(payload)) for who, kind, item, payload in rows]


def standing(workspace, campaign):
    "(item, annotator) to (state, strength, fluency), from the log by nothing but the last event about each."
    state = dict(revised='rated', retracted='discarded')
    last = {(item, who): (payload.get('state', state.get(kind, kind)), payload.get('strength'), payload.get('fluency'))
            for who, kind, item, payload in events(workspace, campaign) if kind not in ('commented', 'adjudicated')}
    return {k: v for k, v in last.items() if v[0] not in ('assigned', 'leased', 'expired')}


class Connection:
    "A way to a server on this machine by a port of its own, which can be cut, stalled, delayed, or lose what is sent."
    def __init__(self, port):
        self.port, self.pairs = port, []
        self.mend()
        self.door = socket.create_server(('127.0.0.1', 0))
        self.address = f'http://127.0.0.1:{self.door.getsockname()[1]}'
        threading.Thread(target=self.listen, daemon=True).start()

    def mend(self): self.refuses = self.stalls = self.loses = self.late = 0.

    def cut(self, seconds):
        self.refuses = time.monotonic() + seconds
        for pair in self.pairs: shut(pair)
        self.pairs.clear()

    def stall(self, seconds): self.stalls = time.monotonic() + seconds
    def lose(self, seconds): self.loses = time.monotonic() + seconds
    def delay(self, seconds): self.late = seconds

    def listen(self):
        "Pass on whatever comes by the door, until it is closed."
        while True:
            try: browser = self.door.accept()[0]
            except OSError: return
            if time.monotonic() < self.refuses:
                browser.close()
                continue
            pair = browser, socket.create_connection(('127.0.0.1', self.port))
            self.pairs.append(pair)
            for source, target in (pair, pair[::-1]):
                threading.Thread(target=self.pass_on, args=(source, target, source is browser), daemon=True).start()

    def pass_on(self, source, target, of_browser):
        "Bytes of one side for the other, until one of them is closed."
        try:
            while data := source.recv(65_536):
                time.sleep(self.late)
                while time.monotonic() < self.stalls: time.sleep(.02)
                if of_browser and time.monotonic() < self.loses: break  # a stream that lacks bytes has to end
                target.sendall(data)
        except OSError: pass
        shut((source, target))

    def close(self):
        self.door.close()
        for pair in self.pairs: shut(pair)


def shut(pair):
    "Close both ends, also for a thread that waits for bytes."
    for end in pair:
        with suppress(OSError): end.shutdown(socket.SHUT_RDWR)
        end.close()


class Rater:
    "Somebody at the page, with what the tests do on it; remembers requests that leave the machine."
    def __init__(self, context, address, tab=None):
        self.address, self.abroad, self.lent = address, [], tab is not None
        self.tab = tab or context.new_page()
        self.tab.set_default_timeout(PATIENCE)
        self.tab.on('request', self.note_request)

    def note_request(self, request):
        here = self.address, 'data:', 'blob:', 'about:', self.address.replace('http', 'ws')
        if not request.url.startswith(here): self.abroad.append(request.url)

    def open(self, campaign, who=None, **more):
        "Go to the page and wait for the card."
        parameters = {k: v for k, v in dict(campaign=campaign, annotator=who, **more).items() if v}
        self.tab.goto(f'{self.address}/annotate?{urlencode(parameters)}')
        return self.begin()

    def begin(self):
        "Confirm the guidelines where this rater is new to the campaign, and wait for the card."
        start = self.tab.locator('.st-key-admit button')
        start.or_(self.tab.locator('.card')).first.wait_for()
        if start.count(): start.click()
        return self.seated()

    def reload(self):
        self.tab.reload()
        return self.seated()

    def seated(self):
        self.until("c.querySelector('[data-side=reference], .empty')")
        self.tab.wait_for_function("document.querySelector('[data-testid=stApp]').dataset.testScriptState != 'running'")
        return self

    def until(self, condition, arg=None):
        "Wait until something holds of the card `c`."
        self.tab.wait_for_function(f"arg => {{ const c = {CARD}; return c && ({condition}); }}", arg=arg, polling=10)
        return self

    def card(self, expression):
        "Something of the card `c`."
        return self.tab.evaluate(f"() => {{ const c = {CARD}; return {expression}; }}")

    def text(self, side='reference'): return self.card(f"c.querySelector('[data-side={side}]')?.textContent ?? null")
    def told(self): return self.card("c.querySelector('.told').innerText")
    def empty(self): return self.card("c.querySelector('.empty')?.innerText ?? null")
    def pressed(self): return self.card("[...c.querySelectorAll('[aria-pressed=true] b')].map(b => b.textContent)")
    def far(self): return self.card("c.querySelector('.how-far').innerText")
    def item(self): return int(re.match(r'Pair (\d+) ', self.text())[1])

    def keys(self, *keys):
        for key in keys: self.tab.keyboard.press(key)
        return self

    def next(self, *keys):
        "Press keys that end with the next pair; the milliseconds from the last one until it is there."
        before = self.text()
        self.keys(*keys[:-1])
        start = time.perf_counter()
        self.keys(keys[-1])
        self.until("!c.classList.contains('waiting') && c.querySelector('[data-side=reference]')?.textContent !== arg",
                   before)
        return 1e3 * (time.perf_counter() - start)

    def answered(self, *keys):
        "Press keys and wait until the server has answered."
        self.keys(*keys)
        return self.until("!c.classList.contains('waiting')")

    def at_once(self, *keys):
        "Keys that fall before the server can have answered the first."
        self.tab.evaluate("keys => keys.forEach(key => document.dispatchEvent(new KeyboardEvent('keydown', "
                          "{key, bubbles: true, cancelable: true})))", list(keys))
        return self

    def shot(self, path):
        "A picture of what is in view, where somebody wants to look at it: PICTURES=1."
        if not os.environ.get('PICTURES'): return
        path.parent.mkdir(exist_ok=True)
        self.tab.wait_for_timeout(500)
        self.tab.screenshot(path=path)

    def close(self):
        "Close the tab, or give back one that was lent."
        self.tab.remove_listener('request', self.note_request)
        if self.lent: self.tab.goto('about:blank')
        else: self.tab.close()
        assert not self.abroad, f'the app asked for {self.abroad[:3]}'
