package config

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPartitionsOfAnInstance(t *testing.T) {
	for text, want := range map[string][]int32{
		"all": {0, 1, 2, 3}, "": {0, 1, 2, 3}, "none": nil, "2": {2}, "0-1, 3": {0, 1, 3}, "3,0": {0, 3},
	} {
		got, err := Fanout{Partitions: text}.Own(4)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"4", "0-4", "1-0", "x", "-1", "1,1", "0-2,2", "1-", ",", "1--2"} {
		_, err := Fanout{Partitions: text}.Own(4)
		require.Error(t, err, text)
	}
}

func TestPartitionsAreNotDividedWhereNobodyElseCanWorkThem(t *testing.T) {
	for _, args := range [][]string{{"--fanout-partitions=0-3"}, {"--fanout-standby=true"}, {"--fanout-partitions=none", "--log-brokers=h:1"}} {
		_, err := Load(Input{Flags: flags(t, args...)})
		found := problems(t, err)
		require.Len(t, found, 1, args)
		require.Contains(t, found[0], "no other instance can work the rest", args)
	}
	_, err := Load(Input{Flags: flags(t, "--fanout-partitions=0-3", "--fanout-standby=true", "--log-brokers=h:1", "--store-url=redis://h")})
	require.NoError(t, err)
	_, err = Load(Input{Flags: flags(t, "--fanout-partitions=64")})
	require.Contains(t, problems(t, err)[0], "beyond the last partition, 63")
}
