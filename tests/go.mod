module github.com/carillon-rt/carillon/tests

go 1.26.8

require golang.org/x/sys v0.49.0

replace github.com/carillon-rt/carillon => ../
