"""Right values and times: the error budget, the libraries beside ours, the search."""
