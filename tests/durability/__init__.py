"""What survives kills, signals, chance and broken machines; a fake engine makes it quick."""
