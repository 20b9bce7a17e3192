package bench

var NotTheProduct = 1
