"""The Mooncake companion: the papers' serving platform as a model to run, change and cite."""

__version__ = "0.1.0"
