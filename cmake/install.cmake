# make install: the program, its documents, and the model that comes with it where the tree has one.
include(GNUInstallDirs)
install(TARGETS pergola RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(FILES README.md CHANGELOG.md LICENSE NOTICE THIRD_PARTY_LICENSES DESTINATION ${CMAKE_INSTALL_DOCDIR})
if(EXISTS ${CMAKE_SOURCE_DIR}/models/demo/config.json)
  install(DIRECTORY models/demo DESTINATION ${CMAKE_INSTALL_DATADIR}/pergola/models)
endif()
