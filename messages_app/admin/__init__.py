"""What admins are made of: the base of lists, and the parts that a list has. Nothing is registered here; see traces_app.admin."""
