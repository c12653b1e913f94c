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

# Section to its pages: module, title and icon. The modules are loaded when a page is opened for the first time.
SECTIONS = {
    'Pairs': (('overview', 'Overview', 'dashboard'),
              ('back_translation', 'Back-translation', 'translate'),
              ('pairs', 'Pairs', 'filter_alt')),
    'People': (('annotate', 'Annotate', 'rate_review'),
               ('agreement', 'Agreement', 'handshake')),
    'Encoders': (('training', 'Training', 'show_chart'),
                 ('negatives', 'Mega-batch negatives', 'contrast'),
                 ('embedding_map', 'Embedding map', 'scatter_plot'),
                 ('results', 'Results', 'leaderboard'),
                 ('compare', 'Compare', 'compare_arrows')),
    'Words and text': (('generate', 'Generate', 'edit_note'),
                       ('lexicon', 'Lexicon', 'dictionary'),
                       ('neighbours', 'Neighbours', 'join_inner')),
}
# Addresses that lead to a page as well: its own beside the front page, and those that it had before.
OLDER = {'overview': 'overview', 'sts-results': 'results', 'score-ranges': 'pairs', 'filters': 'pairs'}


def view(module, title, icon, address=None, **options):
    "A page of the navigation; without an address the front page."
    def draw(): import_module(f'paranmt_lab.pages.{module}').page()
    return st.Page(draw, title=title, icon=f':material/{icon}:', url_path=address, default=address is None, **options)


with show_errors():
    front = 'overview' if access.researcher(settings()) else 'annotate'
    sections = SECTIONS if front == 'overview' else {'': [page for page in SECTIONS['People'] if page[0] == front]}
    known = {page[0]: page for pages in sections.values() for page in pages}
    menu = {section: [view(*page, None if page[0] == front else page[0].replace('_', '-')) for page in pages]
            for section, pages in sections.items()}
    if front == 'overview' and PLUGIN_PAGES:
        menu['Plugins'] = [st.Page(page.draw, title=page.title, icon=f':material/{page.icon}:', url_path=address)
                           for address, page in PLUGIN_PAGES.items()]
    older = {address: module for address, module in {**OLDER, front: front}.items() if module in known}
    hidden = [view(*known[module], address, visibility='hidden') for address, module in older.items()]
    menu[list(menu)[0]] += hidden
    pages = [page for section in menu.values() for page in section]
    page = st.navigation(menu, expanded=True)  # every page is seen: more than ten are otherwise folded
    know_pages(pages)
    one_back_for_one_step()
    access.show_account()
    access.return_to_address()
    name_tab(page.title)  # a page may stop before its end
    for note in plugin_notes() if page.title == 'Overview' else ():
        st.warning(escaped(note), icon=':material/extension_off:')
    with sign_of_work(page.title): page.run()
    name_tab(page.title)
