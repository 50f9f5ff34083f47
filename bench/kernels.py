NOTES=""
def cases(): return []
