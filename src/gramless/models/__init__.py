"""What a fitted machine is: a kernel expansion on some points, plus a bias."""
