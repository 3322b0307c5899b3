"""Elastic jobs: hosts, and drivers that start workers there."""
