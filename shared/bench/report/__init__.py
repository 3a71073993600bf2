"""The report of records, as a page, Markdown and console text: the same words and tables, and on the page plots."""
