"""The app: registers its pages and nothing more. Each page is a function of `paranmt_lab.pages`, written in nbs/62_pages.*.ipynb."""
import streamlit as st

from paranmt_lab.pages import overview, score_ranges

st.set_page_config(page_title='ParaNMT Lab', page_icon=':material/translate:', layout='wide')
st.navigation([
    st.Page(overview.page, title='Overview', icon=':material/dashboard:', url_path='overview', default=True),
    st.Page(score_ranges.page, title='Score ranges', icon=':material/bar_chart:', url_path='score-ranges'),
]).run()
