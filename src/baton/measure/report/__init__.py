"""The report over traces: the survey's checklist, tables for people, Markdown and HTML."""
