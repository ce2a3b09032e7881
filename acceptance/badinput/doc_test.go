// Package badinput_test gives a node, its API, its command line, its topics, its
// disk and the servers beside it everything that is wrong, and expects the same
// of each: a clear error that says what to do, or quarantine with the right
// reason; nothing acknowledged is lost; the node goes on, or ends with a code
// that is not 0 and heals when it is started again (design 2.5, 3.1, 5.5, 9, 10).
//
// It owns the list below and trusts nothing: nodes run as in production, in this
// process or as the built command. Tests that start processes or servers are
// skipped in -short only. Where another package's test shows the same closer to
// the code, it is named too.
//
//	what is wrong                                    shown by
//	ids: delimiters, end to end, all protocols       TestDelimitersInIDsReachNobodyElse, TestTheSameTextSplitElsewhereIsAnotherRequest,
//	                                                 stores/pebble TestNoIDReachesAnothersKeys
//	ids: bad ones, API (gRPC, gRPC-Web, Connect,     TestMalformedIDsAreRefusedByTheAPI
//	  JSON)
//	ids: bad ones, command line                      TestBadIDsOnTheCommandLine
//	ids: bad ones, outbox and dispatch topic         TestBadOutboxRecordsAreQuarantined, TestBadDispatchRecordsAreQuarantined
//	empty group, group of one                        TestGroupsOfNobodyAndOfOne
//	0, 17 and repeated recipients                    TestRecipientsAreCounted; on the topics as above
//	sizes over the limits                            TestSizesOverTheLimits, broker TestPublishLargestRecord; on the topics as above
//	the other kind of conversation                   TestKindsOfConversationsAreNotMixed
//	versions, no protobuf, shard, clock ahead        TestBadOutboxRecordsAreQuarantined, TestBadDispatchRecordsAreQuarantined,
//	                                                 TestQuarantineOutlivesARestart, records TestOutboxRefusals, TestDispatchRefusals
//	digest conflict                                  TestTheSamePlaceWrittenTwiceIsADigestConflict, TestBadDispatchRecordsAreQuarantined
//	an audience that is not there                    TestUnknownAudienceIsNamedAndHoldsUpItsPartitionOnly, ingest TestUnreadableAudienceHoldsW
//	import files                                     TestBadImportFiles, cmd/laneway TestImportReadsUsersAndReportsBadLines
//	imports through the API                          TestImportsAreAllOrNothing
//	cursors                                          TestCursorsThatAreNotThisUsers, TestCursorAheadAndOfALaterEpoch, api FuzzCursor
//	page sizes                                       TestPageSizes
//	junk on the API's port                           TestJunkOnTheAPIPort, api TestErrorsBeforeTheServicesHaveAReasonToo
//	junk on the embedded log's port                  broker TestEmbeddedSurvivesJunk, TestEmbeddedSurvivesNonsense
//	disk full: store, log                            TestDiskFullWhereATmpfsCanBeMounted, stores/pebble TestDiskFullOnTheLogEndsService,
//	                                                 TestDiskFullOnAFlushEndsService, TestFailedSyncEndsService
//	one directory, two processes                     TestOneDirectoryForTwoProcesses, TestOneTemporalDirectoryForTwoServers,
//	                                                 stores/pebble TestAnotherProcessIsRefused, broker TestEmbeddedRefusesADirectoryInUse
//	directory of other shard or partition counts     TestDirectoryOfAnotherDeployment
//	directory that is a file, not writable           TestDirectoryThatIsNone, TestReadOnlyFileSystemWhereOneCanBeMounted
//	corrupt store files                              TestCorruptStoreFiles, stores/pebble TestDamagedFileIsCorrupt, TestDamagedRowsAreNamed
//	ports in use: API, Temporal Web UI               TestPortsInUse
//	Temporal absent, there, lost, back               TestTemporalAbsentThenThereThenLost
//	the log absent, lost, back                       TestLogAbsentThenLost, fanout TestBrokerRestartUnderTheCoordinator
//	configuration                                    TestBadConfiguration, config TestWhatIsWrongIsNamedWithItsSourceAndFix
//	check                                            TestCheckNamesWhatIsMissing, cmd/laneway TestCheckPrintsEachProblemWithItsFix
package badinput_test
