"""The app: registers its pages. Each page is a function of `paranmt_lab.pages`, written in nbs/6_showing/pages/."""
from importlib import import_module
from pathlib import Path

import streamlit as st

st.set_page_config(page_title=st.session_state.get('_tab', 'ParaNMT Lab'), layout='wide',
                   page_icon=Path(__file__).parent / '.streamlit/icon.svg')

from paranmt_lab.components import access
from paranmt_lab.components.links import know_pages, name_tab, one_back_for_one_step, sign_of_work
from paranmt_lab.components.parts import escaped, show_errors
from paranmt_lab.ground.plugins import plugin_notes
from paranmt_lab.ground.settings import settings
from paranmt_lab.pages.plugins import PLUGIN_PAGES

# Module, title and icon of each page; the modules are loaded when a page is opened for the first time.
PAGES = (
    ('overview', 'Overview', 'dashboard'),
    ('back_translation', 'Back-translation', 'translate'),
    ('score_ranges', 'Score ranges', 'bar_chart'),
    ('filters', 'Filters', 'filter_alt'),
    ('generate', 'Generate', 'edit_note'),
    ('lexicon', 'Lexicon', 'dictionary'),
    ('annotate', 'Annotate', 'rate_review'),
    ('agreement', 'Agreement', 'handshake'),
    ('training', 'Training', 'show_chart'),
    ('negatives', 'Mega-batch negatives', 'contrast'),
    ('embedding_map', 'Embedding map', 'scatter_plot'),
    ('neighbours', 'Neighbours', 'join_inner'),
    ('compare', 'Compare', 'compare_arrows'),
    ('results', 'Results', 'leaderboard'),
)
# Addresses that lead to a page as well: its own beside the front page, and those that it had before.
OLDER = {'overview': 'overview', 'sts-results': 'results'}


def view(module, title, icon, address=None, **options):
    "A page of the navigation; without an address the front page."
    def draw(): import_module(f'paranmt_lab.pages.{module}').page()
    return st.Page(draw, title=title, icon=f':material/{icon}:', url_path=address, default=address is None, **options)


with show_errors():
    known = {module: (module, title, icon) for module, title, icon in PAGES}
    front = 'overview' if access.researcher(settings()) else 'annotate'
    shown = known if front == 'overview' else {front: known[front]}
    older = {address: module for address, module in {**OLDER, front: front}.items() if module in shown}
    pages = [view(*known[module], None if module == front else module.replace('_', '-')) for module in shown]
    if front == 'overview':
        pages += [st.Page(page.draw, title=page.title, icon=f':material/{page.icon}:', url_path=address)
                  for address, page in PLUGIN_PAGES.items()]
    pages += [view(*known[module], address, visibility='hidden') for address, module in older.items()]
    page = st.navigation(pages, expanded=True)  # every page is seen: more than ten are otherwise folded
    know_pages(pages)
    one_back_for_one_step()
    access.show_account()
    access.return_to_address()
    name_tab(page.title)  # a page may stop before its end
    for note in plugin_notes() if page.title == 'Overview' else ():
        st.warning(escaped(note), icon=':material/extension_off:')
    with sign_of_work(page.title): page.run()
    name_tab(page.title)
