"""Shipped for the tests of everyone who builds on Segue."""
