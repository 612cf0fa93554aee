"""The page: one HTML file that opens from disk, with everything in it."""

from revar.report.page.build import Page, build_page
from revar.report.page.content import Content, PageRun, TestSet

__all__ = ["Content", "Page", "PageRun", "TestSet", "build_page"]
