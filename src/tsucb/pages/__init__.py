"""Figures and HTML pages: of experiments, comparisons, agents and the service."""
