"""The vision-language encoder of pins: image and text to one vector, for pins whose rows know little yet."""
