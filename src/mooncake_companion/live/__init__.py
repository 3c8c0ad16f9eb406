"""Figures that a reader's browser can compute again: plain Python, standard library only.

`figures.LIVE` lists them; `answers.answer` is what the page asks. What an experiment and its live
figure have in common, its `Params` above all, is here, and the experiment imports it.
"""
