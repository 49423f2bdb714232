"""Computes tables, an audit and a report from journals. Only this package and ``polydomo.spark`` import pyspark."""
