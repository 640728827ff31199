"""Tests with a real model and a real server."""
