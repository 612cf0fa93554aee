"""Networks: classifiers with a trunk and a head, scorers, and what comes before both."""
