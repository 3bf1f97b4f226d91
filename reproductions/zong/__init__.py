"""Reproduction of Zong et al. (2023)."""
