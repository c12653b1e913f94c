"The Streamlit pages: one module a page, each with a function `page`"
