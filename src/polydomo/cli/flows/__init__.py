"""`polydomo flow`"""
