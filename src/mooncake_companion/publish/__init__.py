"""The book, its reruns and its figures: all that knows notebooks, processes and addresses."""
