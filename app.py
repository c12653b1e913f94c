"""The app: registers its pages. Each page is a function of `paranmt_lab.pages`, written in nbs/6_showing/pages/."""
from pathlib import Path

import streamlit as st

from paranmt_lab.components import access
from paranmt_lab.components.links import know_pages, name_tab, one_back_for_one_step
from paranmt_lab.components.parts import show_errors
from paranmt_lab.ground.settings import settings
from paranmt_lab.pages import (
    agreement,
    annotate,
    back_translation,
    compare,
    embedding_map,
    filters,
    generate,
    lexicon,
    negatives,
    neighbours,
    overview,
    results,
    score_ranges,
    training,
)

st.set_page_config(page_title=st.session_state.get('_tab', 'ParaNMT Lab'), layout='wide',
                   page_icon=Path(__file__).parent / '.streamlit/icon.svg')
def home(**address): return st.Page(overview.page, title='Overview', icon=':material/dashboard:', **address)
def rating(**address): return st.Page(annotate.page, title='Annotate', icon=':material/rate_review:', **address)
with show_errors():
    pages = [
        # the second for an address that somebody noted
        home(default=True), home(url_path='overview', visibility='hidden'),
        st.Page(back_translation.page, title='Back-translation', icon=':material/translate:',
                url_path='back-translation'),
        st.Page(score_ranges.page, title='Score ranges', icon=':material/bar_chart:', url_path='score-ranges'),
        st.Page(filters.page, title='Filters', icon=':material/filter_alt:', url_path='filters'),
        st.Page(generate.page, title='Generate', icon=':material/edit_note:', url_path='generate'),
        st.Page(lexicon.page, title='Lexicon', icon=':material/dictionary:', url_path='lexicon'),
        rating(url_path='annotate'),
        st.Page(agreement.page, title='Agreement', icon=':material/handshake:', url_path='agreement'),
        st.Page(training.page, title='Training', icon=':material/show_chart:', url_path='training'),
        st.Page(negatives.page, title='Mega-batch negatives', icon=':material/contrast:', url_path='negatives'),
        st.Page(embedding_map.page, title='Embedding map', icon=':material/scatter_plot:', url_path='embedding-map'),
        st.Page(neighbours.page, title='Neighbours', icon=':material/join_inner:', url_path='neighbours'),
        st.Page(compare.page, title='Compare', icon=':material/compare_arrows:', url_path='compare'),
        # the second for the address that the page had before
        st.Page(results.page, title='Results', icon=':material/leaderboard:', url_path='results'),
        st.Page(results.page, title='Results', url_path='sts-results', visibility='hidden'),
    ] if access.researcher(settings()) else [
        # the second for the link of a campaign
        rating(default=True), rating(url_path='annotate', visibility='hidden')]
    page = st.navigation(pages, expanded=True)  # every page is seen: more than ten are otherwise folded
    know_pages(pages)
    one_back_for_one_step()
    access.show_account()
    access.return_to_address()
    name_tab(page.title)  # a page may stop before its end
    page.run()
    name_tab(page.title)
