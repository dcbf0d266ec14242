"""The base of the admin's lists, and the parts that a list has. Nothing is registered here; see traces_app.admin."""
