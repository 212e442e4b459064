"""
Patches and atoms
=================

`PatchDictionary` learns typical patches of images, its atoms, and describes an image by how much each part of
it looks like each atom. Below: the atoms, and where in one digit four of them answer.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from gramless import LSSVC
from gramless.images import PatchDictionary
from gramless.kernels import Polynomial

digits = load_digits()
train, test, y_train, y_test = train_test_split(digits.images, digits.target, random_state=0, stratify=digits.target)
dictionary = PatchDictionary(48, patch_size=4, pooling=2, n_patches=30_000, random_state=0).fit(train)
machine = LSSVC(kernel=Polynomial(degree=4, gamma=0.5, coef0=0.5), C=100.0).fit(dictionary.transform(train), y_train)
error = 100 * (1 - machine.score(dictionary.transform(test), y_test))

patches = dictionary.patches_[..., 0]
image = test[3]
windows = np.lib.stride_tricks.sliding_window_view(image, (4, 4)).reshape(5, 5, -1)
centred = windows - windows.mean(axis=2, keepdims=True)
answers = np.maximum(centred @ patches.reshape(len(patches), -1).T, 0)
strongest = np.argsort(-answers.max(axis=(0, 1)))[:4]

figure = plt.figure(figsize=(10, 4), layout="constrained")
left, right = figure.subfigures(1, 2, width_ratios=[1.25, 1])
for axis, patch in zip(left.subplots(6, 8).ravel(), patches, strict=True):
    axis.imshow(patch, cmap="gray", vmin=-np.abs(patch).max(), vmax=np.abs(patch).max())
    axis.axis("off")
left.suptitle(f"48 atoms; test error of a least-squares machine {error:.1f} %", fontsize=10)
grid = right.subplots(2, 4)
for axis in grid.ravel():
    axis.axis("off")
for column, atom in enumerate(strongest):
    grid[0, column].imshow(patches[atom], cmap="gray")
    grid[0, column].set_title(f"atom {atom}", fontsize=9)
    grid[1, column].imshow(image, cmap="gray_r", extent=(0, 8, 8, 0))
    grid[1, column].imshow(answers[..., atom], cmap="Reds", alpha=0.55, extent=(1.5, 6.5, 6.5, 1.5))
    grid[1, column].set(xlim=(0, 8), ylim=(8, 0))
right.suptitle("Four atoms, and where in a digit they answer", fontsize=10)
plt.show()
