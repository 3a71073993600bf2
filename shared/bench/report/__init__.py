"""The report of records, as a page and as Markdown: the same words and tables, and on the page plots."""
