"""Estimators: from reports to a distribution over the sites."""
