package main

import (
	"context"
	"errors"
	"strconv"
)

var errNoStart = errors.New("no disk")

func startFails(context.Context, string) (system, error) { return nil, errNoStart }

func itoa(n int) string { return strconv.Itoa(n) }
