"""The waist of the hourglass: the records that every way in produces. Django-free."""
