// Package replaytests holds histories recorded from real runs on a real server
// and replays them against the workflows as they are now (design 7, "Change";
// design 11).
//
// A history that does not replay means that running dispatches would stop at the
// next deployment: the change belongs behind workflow.GetVersion. Histories of
// released versions stay; `make record-histories` records those of this version
// anew, and is only right for a version that was never released.
package replaytests
